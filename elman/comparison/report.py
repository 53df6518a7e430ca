"""The report of a race: one HTML page with the verdict, figures, tables, samples, and the commands to reproduce it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from elman.comparison.disagreements import disagreements
from elman.comparison.plan import alone_in
from elman.comparison.race import RaceRun
from elman.comparison.race_figures import race_figures
from elman.comparison.results import RaceResults, files_of_race
from elman.comparison.verdict import chance, effort, headline, number, seeds_of, short, spread, staircase, unit_of
from elman.figures.figure import Figure
from elman.figures.render_html import block, page, section, table
from elman.runs import atomic_write

SAMPLES = 3
LONGEST = 400  # characters of a sample or of a failure


def write_report(found: RaceResults, running: RaceRun, arguments: Sequence[str]) -> Path:
    """Writes report.html in the folder of the race, and its figures in plots/."""
    commands, path = _commands(running, arguments), running.folder / "report.html"
    with files_of_race(running.folder), alone_in(running.folder):
        figures = race_figures(found, running.jobs, unit_of(running.plan), commands[0])
        for name, figure in figures.items():
            figure.save_images(running.folder / "plots" / name)
        atomic_write(path, report_page(found, running, figures, commands).encode())
    return path


def report_page(found: RaceResults, running: RaceRun, figures: Mapping[str, Figure], commands: Sequence[str]) -> str:
    blocks = "\n".join(block(figure, tables=False, name=name) for name, figure in figures.items())
    answer, _, rest = headline(found).partition(". ")
    differing = disagreements(found, running)
    parts = [
        *(f"<p>{without_breaks(text)}</p>" for text in (rest, staircase(found)) if text),
        f'<p class="facts">{escape(_summary(found, running))}</p>',
        f'<div class="columns">{blocks}</div>' if blocks else "",
        section("All scores", _scores(found), "scores"),
        section("Costs", _costs(found, running), "costs"),
        _samples(found),
        section("Where predictions differ", table(*differing), "parting") if differing else "",
        failures_table(
            [(f"{name} {label}", text) for name, own in running.failures.items() for label, text in own.items()]
        ),
        section("Method", _method(found, running), "method"),
        section("Reproduce", _reproduction(commands), "again"),
    ]
    heading = without_breaks(answer.removesuffix("."))
    return page(answer.partition(":")[0], [part for part in parts if part], heading)


def _summary(found: RaceResults, running: RaceRun) -> str:
    plan = running.plan
    size = f"{short(plan.parameters)} parameters" if plan.parameters else "their own size"
    source = plan.base.data.train or (plan.base.data.language or {}).get("type")
    source = ", ".join(source) if isinstance(source, list) else source
    return (
        f"Task {plan.prepared.task.name} on {source}; {size} (within 2 %), {effort(plan)} each, "
        f"{seeds_of(plan)}, judged on {found.split} data."
    )


def without_breaks(text: str) -> str:
    """As HTML, with no line break between a number and its sign."""
    shown = escape(text, quote=False)
    for sign in (" %", "p &lt; ", "p = "):
        shown = shown.replace(sign, sign.replace(" ", "&nbsp;"))
    return shown


def _scores(found: RaceResults) -> str:
    rows = found.ranked
    others = [key for key in rows[0]["figures"] if key != found.measure.key]
    grammar = [key for key in ("relative_excess", "agreement") if any(row.get(key) is not None for row in rows)]
    names = {"relative_excess": "excess over the entropy", "agreement": "agreement accuracy"}
    heads = ["entrant", found.measure.key.replace("_", " "), "spread", "interval over seeds"]
    heads += [
        *(key.replace("_", " ") for key in others),
        *(names[key] for key in grammar),
        "difference",
        "p by seed",
        "p by document",
        "significant",
    ]
    lines = []
    for row in rows:
        low_high = "exact" if row["exact"] else "–"
        if row["interval"] and not row["exact"]:
            low_high = "–".join(number(found, edge) for edge in row["interval"])
        against = row["against_best"]
        line = [row["entrant"], number(found, row["score"]), spread(found, row) or "–", low_high]
        line += [f"{row['figures'][key]:.4g}" for key in others]
        line += ["–" if row.get(key) is None else f"{row[key]:.1%}" for key in grammar]
        line += ["best", "", "", ""] if against is None else _against(found, against)
        lines.append(line)
    caption = (
        "From best to worst. Spread is the standard deviation over seeds; the interval is a bootstrap over seeds, too "
        "narrow where there are few. The p-values are of the difference from the best: Welch's t-test over seeds, "
        "paired bootstrap over documents, both with Hochberg's correction."
    )
    return table(caption, heads, lines)


def _against(found: RaceResults, against: dict[str, Any]) -> list[str]:
    chances = [
        "–" if against[key] is None else chance(against[key])[2:].removeprefix("= ").replace(" ", "\N{NO-BREAK SPACE}")
        for key in ("by_seed", "by_document")
    ]
    plus = number(found, against["difference"])
    verdict = "yes" if against["apart"] else f"no: {against['why']}"
    return [plus if plus.startswith("-") else f"+{plus}", *chances, verdict]


def _costs(found: RaceResults, running: RaceRun) -> str:
    """A column for each cost that the task has."""
    rows, unit, note = found.ranked, unit_of(running.plan), running.plan.prepared.task.cost_note
    near = f"s to loss {rows[0]['near_loss']:.3f}" if rows[0].get("near_loss") else "s to near loss"
    longest = max((one["tokens"] for row in rows for one in row.get("state_bytes") or []), default=0)
    shown = (1, 64, longest)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "entrant": lambda row: row["entrant"],
        "parameters": lambda row: "counted" if row["exact"] else f"{row['parameters']:,}",
        "learning rate": lambda row: f"{row['learning_rate']:g}" if row["learning_rate"] else "–",
        f"FLOPs per {unit.removesuffix('s')}": lambda row: short(row["training_flops_per_token"]),
        f"training {unit}/s": lambda row: short(row["training_tokens_per_second"]),
        "training s": lambda row: short(row["training_seconds"]),
        near: _near,
        "generation tokens/s": lambda row: short(row.get("generation_tokens_per_second")),
        "answers/s": lambda row: short(row.get("answers_per_second")),
        "peak MB": lambda row: f"{row['peak_bytes'] / 2**20:,.0f}" if row.get("peak_bytes") else "–",
        f"state bytes after 1 / 64 / {longest:,} tokens": lambda row: _states(row, shown),
    }
    lines = {head: [of(row) for row in rows] for head, of in columns.items()}
    known = {head: cells for head, cells in lines.items() if set(cells) != {"–"}}
    caption = (
        "Costs on one core or accelerator each. FLOPs are of the forward and backward pass; the target loss is 5 % "
        f"above the best validation loss of the race; peak memory is of the whole process. {note}"
    )
    return table(caption, list(known), list(zip(*known.values(), strict=True)))


def _states(row: dict[str, Any], contexts: Sequence[int]) -> str:
    known = {one["tokens"]: one["bytes"] for one in row.get("state_bytes") or []}
    return " / ".join(short(known[one]) for one in contexts) if known else "–"


def _samples(found: RaceResults) -> str:
    rows = [row for row in found.ranked if row.get("samples")]
    if not rows:
        return ""
    parts = []
    for row in rows:
        texts = "".join(f"<li>{escape(' '.join(text.split())[:LONGEST])}</li>" for text in row["samples"][:SAMPLES])
        parts.append(f"<div><h3>{escape(row['entrant'])}</h3><ul>{texts}</ul></div>")
    return section("Samples side by side", f'<div class="columns narrow">{"".join(parts)}</div>', "samples")


def failures_table(problems: Sequence[tuple[str, str]]) -> str:
    """A section with the end of each error; nothing without any."""
    if not problems:
        return ""
    lines = [[name, text.strip()[-LONGEST:]] for name, text in problems]
    caption = "These runs failed and are left out of the ranking."
    return section("Failures", table(caption, ["run", "error"], lines, "words"), "failures")


def _near(row: dict[str, Any]) -> str:
    seconds, seeds = row.get("seconds_to_near_loss"), row.get("seeds_near_loss", 0)
    if seconds is not None:
        return f"{seconds:.3g}"
    return f"{seeds} of {row['seeds']} seeds" if seeds else "never"


def _method(found: RaceResults, running: RaceRun) -> str:
    plan = running.plan
    sizes = [entrant.parameters for entrant in plan.entrants if not entrant.counted]
    span = f"parameters from {min(sizes):,} to {max(sizes):,}" if sizes else ""
    lines = [
        f"Same data, tokenizer and order of batches for all; {span}." if sizes else "",
        *_rates(running),
        "A winner is named only if the intervals over seeds do not overlap and both tests are significant. n-gram "
        "models have no randomness: they run once, over all of the training text.",
    ]
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines if line) + "</ul>"


def _rates(running: RaceRun) -> list[str]:
    """How learning rates were searched, and for which entrants the best was at an edge."""
    race, plan = running.race, running.plan
    if not running.rates:
        return ["All ran with the recipe's learning rate."]
    grids = {entrant.name: plan.rates(entrant) for entrant in plan.entrants}
    shared = ", ".join(f"{rate:g}" for rate in next(iter(grids.values())))
    which = (
        f"the learning rates {shared}" if len({*map(tuple, grids.values())}) == 1 else "learning rates around its own"
    )
    sentences = [
        f"Before the race each entrant tried {which} on {race.trial_share:.0%} of the budget and kept the one with the "
        "lowest validation loss."
    ]
    extra = {name: [f"{rate:g}" for rate in tried if rate not in grids[name]] for name, tried in running.tried.items()}
    shown = ", ".join(f"{name} {' and '.join(rates)}" for name, rates in extra.items() if rates)
    if race.extra_trials and race.trials > 1:
        sentences.append(
            "Where the best rate was the lowest or highest tried, the search went on beyond it, with at most "
            f"{race.extra_trials} more; the budget of the race is the same for all. Extended: {shown or 'none'}."
        )
    searched = {name: tried for name, tried in running.tried.items() if name in running.rates and len(tried) > 2}
    edge = [name for name, tried in searched.items() if running.rates[name] in (min(tried), max(tried))]
    if edge:
        sentences.append(
            f"The best rate was at the edge of the search for {', '.join(edge)}: a wider search may improve the score."
        )
    return sentences


def _commands(running: RaceRun, arguments: Sequence[str]) -> list[str]:
    """The command that was run, the same race from its settings, and the training of each entrant."""
    folder, own = running.folder, [word for path in running.modules for word in ("--module", str(path))]
    given = [[*arguments]] if arguments and arguments[0] == "compare" else []
    given.append(["compare", str(folder / "race.yaml"), "--run", f"{folder}-again", *own])
    for jobs in running.jobs.values():
        job = jobs[0]
        given.append(["train", str(job.folder / "config.yaml"), "--run", f"{folder}-{job.entrant}", *own])
    return [f"elman {shlex.join(words)}" for words in given]


def _reproduction(commands: Sequence[str]) -> str:
    lines = "\n".join(f"<code>{escape(command)}</code>" for command in commands)
    return f"<p>The race, and the training of each entrant:</p><pre>{lines}</pre>"
