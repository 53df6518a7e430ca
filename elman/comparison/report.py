"""The race as one page that needs nothing else: answer, pictures, table, samples, and the commands to do it again."""

import re
import shlex
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from elman.comparison.disagreements import disagreements
from elman.comparison.page import PAGE, grid
from elman.comparison.pictures import Picture, draw_all
from elman.comparison.race import Running
from elman.comparison.results import Found
from elman.comparison.verdict import chance, effort, headline, number, seeds_of, short, spread, staircase, unit_of
from elman.runs import atomic_write

SAMPLES = 3
TOLD = 400  # characters of a sample or of a failure


def write_report(found: Found, running: Running, arguments: Sequence[str]) -> Path:
    """report.html in the folder of the race, and the plots beside it."""
    commands = _commands(running, arguments)
    pictures = draw_all(found, running.jobs, running.folder / "plots", unit_of(running.plan), commands[0])
    path = running.folder / "report.html"
    atomic_write(path, page(found, running, pictures, commands).encode())
    return path


def page(found: Found, running: Running, pictures: Sequence[Picture], commands: Sequence[str]) -> str:
    sections = [
        '<div class="pictures">' + "\n".join(_figure(picture) for picture in pictures) + "</div>" if pictures else "",
        _section("All figures", _table(found), "figures"),
        _section("Costs", _costs(found, running), "costs"),
        _samples(found),
        _disagreements(found, running),
        _failures(running),
        _section("How it was done", _method(found, running), "method"),
        _section("Do it again", _again(commands), "again"),
    ]
    answer, _, rest = headline(found).partition(". ")
    more = [text for text in (rest, staircase(found)) if text]
    return PAGE.format(
        title=escape(answer.partition(":")[0]),
        answer=_unbroken(answer.removesuffix(".")),
        more="\n".join(f"<p>{_unbroken(text)}</p>" for text in more),
        facts=escape(_facts(found, running)),
        sections="\n".join(section for section in sections if section),
    )


def _facts(found: Found, running: Running) -> str:
    plan = running.plan
    size = f"{short(plan.parameters)} parameters" if plan.parameters else "their own size"
    source = plan.base.data.train or (plan.base.data.language or {}).get("type")
    source = ", ".join(source) if isinstance(source, list) else source
    return (
        f"Task {plan.prepared.task.name} on {source}; {size} (within 2 %), {effort(plan)} each, "
        f"{seeds_of(plan)}, judged on {found.split} data."
    )


def _unbroken(text: str) -> str:
    """No number is parted from its sign at the end of a line."""
    shown = escape(text, quote=False)
    for sign in (" %", "p &lt; ", "p = "):
        shown = shown.replace(sign, sign.replace(" ", "&nbsp;"))
    return shown


def _section(title: str, content: str, name: str) -> str:
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>\n{content}\n</section>'


def _figure(picture: Picture) -> str:
    drawing = picture.svg[picture.svg.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", drawing, count=1)
    drawing = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", drawing, count=1)
    # Names inside a drawing are its own: a page has several.
    drawing = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{picture.name}-", drawing)
    label = f'role="img" aria-label="{escape(picture.title)}" aria-describedby="{picture.name}-words"'
    drawing = drawing.replace("<svg", f"<svg {label}", 1)
    words = f'<figcaption id="{picture.name}-words">{escape(picture.alt)}</figcaption>'
    return _section(picture.title, f"<figure>{drawing}{words}</figure>", picture.name)


def _ranked(found: Found) -> list[dict[str, Any]]:
    return [row for row in found.rows if row["place"] is not None]


def _table(found: Found) -> str:
    rows = _ranked(found)
    others = [key for key in rows[0]["figures"] if key != found.measure.key]
    grammar = [key for key in ("relative_excess", "agreement") if any(row.get(key) is not None for row in rows)]
    names = {"relative_excess": "above best possible", "agreement": "right forms"}
    heads = [
        "entrant",
        found.measure.key.replace("_", " "),
        "spread",
        "seeds drawn anew",
        *(key.replace("_", " ") for key in others),
    ]
    heads += [*(names[key] for key in grammar), "difference", "p by seed", "p by document", "told apart"]
    lines = []
    for row in rows:
        low_high = "exact" if row["exact"] else "–"
        if row["interval"] and not row["exact"]:
            low_high = " to ".join(number(found, edge) for edge in row["interval"])
        against = row["against_best"]
        line = [row["entrant"], number(found, row["score"]), spread(found, row) or "–", low_high]
        line += [f"{row['figures'][key]:.4g}" for key in others]
        line += ["–" if row.get(key) is None else f"{row[key]:.1%}" for key in grammar]
        line += ["best", "", "", ""] if against is None else _against(found, against)
        lines.append(line)
    caption = (
        "From best to worst. Spread is the standard deviation over seeds. Seeds drawn anew, as many and from these, "
        "have 95 of 100 of their means in the interval; few seeds make it narrow, so it proves nothing by itself; "
        "p is the chance of such a difference from the best among equals (Welch by seed, paired bootstrap by document, "
        "both after Hochberg)."
    )
    return grid(caption, heads, lines)


def _against(found: Found, against: dict[str, Any]) -> list[str]:
    chances = [
        "–" if against[key] is None else chance(against[key])[2:].lstrip("= ") for key in ("by_seed", "by_document")
    ]
    plus = number(found, against["difference"])
    told = "yes" if against["apart"] else f"no: {against['why']}"
    return [plus if plus.startswith("-") else f"+{plus}", *chances, told]


def _costs(found: Found, running: Running) -> str:
    """A column for each cost that the task has."""
    rows, unit, note = _ranked(found), unit_of(running.plan), running.plan.prepared.task.race.usage_note
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
        "writing tokens/s": lambda row: short(row.get("generation_tokens_per_second")),
        "answers/s": lambda row: short(row.get("answers_per_second")),
        "peak MB": lambda row: f"{row['peak_bytes'] / 2**20:,.0f}" if row.get("peak_bytes") else "–",
        f"state bytes after 1 / 64 / {longest:,} tokens": lambda row: _states(row, shown),
    }
    lines = {head: [of(row) for row in rows] for head, of in columns.items()}
    had = {head: cells for head, cells in lines.items() if set(cells) != {"–"}}
    caption = (
        "Costs on one core or accelerator each. FLOPs are those of forward and backward; the loss to reach is 5 % "
        f"above the best validation loss of the race; peak memory is that of the whole process. {note}"
    )
    return grid(caption, list(had), list(zip(*had.values(), strict=True)))


def _states(row: dict[str, Any], contexts: Sequence[int]) -> str:
    known = {one["tokens"]: one["bytes"] for one in row.get("state_bytes") or []}
    return " / ".join(short(known[one]) for one in contexts) if known else "–"


def _samples(found: Found) -> str:
    rows = [row for row in _ranked(found) if row.get("samples")]
    if not rows:
        return ""
    parts = []
    for row in rows:
        texts = "".join(f"<li>{escape(' '.join(text.split())[:TOLD])}</li>" for text in row["samples"][:SAMPLES])
        parts.append(f"<div><h3>{escape(row['entrant'])}</h3><ul>{texts}</ul></div>")
    return _section("Samples side by side", f'<div class="samples">{"".join(parts)}</div>', "samples")


def _disagreements(found: Found, running: Running) -> str:
    table = disagreements(found, running)
    if table is None:
        return ""
    return _section("Where they part", grid(*table), "parting")


def _failures(running: Running) -> str:
    if not running.failures:
        return ""
    lines = [
        [f"{name} {label}", text.strip()[-TOLD:]]
        for name, failures in running.failures.items()
        for label, text in failures.items()
    ]
    return _section(
        "Failures",
        grid("These did not end well and count for nothing.", ["run", "what it said"], lines, "words"),
        "failures",
    )


def _near(row: dict[str, Any]) -> str:
    seconds, seeds = row.get("seconds_to_near_loss"), row.get("seeds_near_loss", 0)
    if seconds is not None:
        return f"{seconds:.3g}"
    return f"{seeds} of {row['seeds']} seeds" if seeds else "never"


def _method(found: Found, running: Running) -> str:
    plan = running.plan
    trained = [entrant for entrant in plan.entrants if not entrant.counted]
    sizes = [entrant.parameters for entrant in trained]
    lines = [
        f"Same data, tokenizer and order of batches for all; parameters from {min(sizes):,} to {max(sizes):,}."
        if sizes
        else "",
        *_rates(running),
        "A winner is named only if the intervals over seeds do not overlap and both tests agree. Counted models have "
        "no dice and run once, over all of the training text.",
    ]
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines if line) + "</ul>"


def _rates(running: Running) -> list[str]:
    """How learning rates were found, and whose may lie further out."""
    race, plan = running.race, running.plan
    if not running.rates:
        return ["All ran with the recipe's learning rate."]
    told = [
        f"Before the race each tried the learning rates {', '.join(f'{rate:g}' for rate in plan.rates())} on "
        f"{race.trial_share:.0%} of the budget and kept the one with the least validation loss."
    ]
    extra = {name: [f"{rate:g}" for rate in tried if rate not in plan.rates()] for name, tried in running.tried.items()}
    shown = ", ".join(f"{name} {' and '.join(rates)}" for name, rates in extra.items() if rates)
    if race.extra_trials and race.trials > 1:
        told.append(
            "One rule for all: whose best rate was the lowest or highest so far tried the next one beyond it, at most "
            f"{race.extra_trials} more; the race itself is as long for everyone. So tried: {shown or 'nobody'}."
        )
    edge = [
        name
        for name, rate in running.rates.items()
        if len(tried := running.tried[name]) > 2 and rate in (min(tried), max(tried))
    ]
    if edge:
        told.append(
            f"The best rate was at an edge of those tried for {', '.join(edge)}: a wider search might serve them."
        )
    return told


def _commands(running: Running, arguments: Sequence[str]) -> list[str]:
    """The one that was given, the same race of its settings, and each entrant alone."""
    folder, own = running.folder, [word for path in running.modules for word in ("--module", str(path))]
    given = [[*arguments]] if arguments and arguments[0] == "compare" else []
    given.append(["compare", str(folder / "race.yaml"), "--run", f"{folder}-again", *own])
    for jobs in running.jobs.values():
        job = jobs[0]
        given.append(["train", str(job.folder / "config.yaml"), "--run", f"{folder}-{job.entrant}", *own])
    return [f"elman {shlex.join(words)}" for words in given]


def _again(commands: Sequence[str]) -> str:
    lines = "\n".join(f"<code>{escape(command)}</code>" for command in commands)
    return f"<p>The whole race, and each entrant alone:</p><pre>{lines}</pre>"
