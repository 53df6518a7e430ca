"""The verdict of a race as text: the winner, by how much, and how significant."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elman.comparison.plan import RacePlan
from elman.comparison.results import RaceResults

if TYPE_CHECKING:
    from elman.comparison.sweep_results import SweepResults
    from elman.comparison.sweep_run import SweepRun

UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
FAR = 5  # words between a verb and its noun, more than a short window holds
CHANCE = 0.6  # agreement accuracy that guessing may reach on a small sample
SOLVED = 0.9


def headline(found: RaceResults) -> str:
    """The winner with its uncertainty, in one or two sentences."""
    rows = {row["entrant"]: row for row in found.ranked}
    ranked = list(rows)
    if not ranked:
        return "No result: all runs failed."
    best = rows[ranked[0]]
    if len(ranked) == 1:
        return f"No comparison: only {best['entrant']} finished, with {score(found, best)}."
    if found.verdict.winner:
        second, seeds = rows[ranked[1]], "" if best["exact"] else f", {best['seeds']} seeds"
        return (
            f"Use {best['entrant']}: it wins with {score(found, best)}{_above(best)}. "
            f"Next is {second['entrant']} with {score(found, second)}; the difference is significant "
            f"({_chances(second)}{seeds})."
        )
    tied = found.verdict.tied
    beaten = [name for name in ranked if name not in tied]
    cheapest = min(tied, key=lambda name: rows[name].get("training_seconds") or float("inf"))
    why = found.verdict.comparisons[tied[1]].why
    text = f"No single winner: {join(tied)} do not differ significantly ({tied[0]} against {tied[1]}: {why}). "
    text += f"The best mean is {best['entrant']}'s: {score(found, best)}{_above(best)}. "
    if best["seeds"] > 1 or best["exact"]:
        are = "is" if len(beaten) == 1 else "are"
        text += f"{join(beaten)} {are} significantly worse than {tied[0]}. " if beaten else ""
        text += f"{_unsure(found, rows)}Of the leaders, {cheapest} trains fastest."
    else:
        text += "Use --seeds 3 to test whether the order is significant."
    return text


def _unsure(found: RaceResults, rows: dict[str, dict[str, Any]]) -> str:
    """Entrants whose intervals do not overlap that of the best, so that more seeds may decide."""
    apart = [name for name in found.verdict.tied[1:] if not found.verdict.comparisons[name].overlap]
    if not apart:
        return ""
    seeds = max(rows[name]["seeds"] for name in found.verdict.tied)  # deterministic models run once
    shown = join([f"{name} ({number(found, rows[name]['score'])})" for name in apart])
    return f"{shown} may be worse, but {seeds} seeds are too few to decide: --resume --seeds {2 * seeds} adds more. "


def staircase(found: RaceResults) -> str:
    """Which entrants solve long-distance agreement, and which guess, on a synthetic language."""
    far = {row["entrant"]: _beyond(row["staircase"], FAR) for row in found.ranked if row.get("staircase")}
    known = {name: value for name, value in far.items() if value is not None}
    if not known:
        return ""
    fail = [name for name, value in known.items() if value <= CHANCE]
    hold = [name for name, value in known.items() if value >= SOLVED]
    text = f"At {FAR} or more words between a verb and the noun that decides its form"
    between = [name for name in known if name not in hold and name not in fail]
    parts = [
        f"{join(names)} {one if len(names) == 1 else more} ({', '.join(f'{known[name]:.0%}' for name in names)} right)"
        for names, one, more in (
            (hold, "still finds the right form", "still find the right form"),
            (fail, "guesses", "guess"),
            (between, "is in between", "are in between"),
        )
        if names
    ]
    return f"{text}, {'; '.join(parts)}."


def _beyond(steps: list[dict[str, Any]], least: int) -> float | None:
    far = [(step["accuracy"], step["words"]) for step in steps if step["value"] >= least]
    words = sum(count for _, count in far)
    return sum(share * count for share, count in far) / words if words else None


def score(found: RaceResults, row: dict[str, Any]) -> str:
    """2.041 nats per token (2.038 to 2.044 over its seeds)."""
    shown = number(found, row["score"])
    unit = found.measure.words
    interval = row["interval"]
    if row["exact"] or interval is None:
        return f"{shown} {unit}"
    low, high = (number(found, edge) for edge in interval)
    return f"{shown} {unit} ({low} to {high} over its seeds)"


def number(found: "RaceResults | SweepResults | SweepRun", value: float) -> str:
    """A score in the format of its measure."""
    return f"{value:.1%}" if found.measure.percent else f"{value:.{found.measure.digits}f}"


def spread(found: RaceResults, row: dict[str, Any]) -> str:
    """Standard deviation over seeds, formatted as `number`; empty where there is none."""
    if row["spread"] is None or row["exact"]:
        return ""
    return f"{100 * row['spread']:.2g}%" if found.measure.percent else f"{row['spread']:.2g}"


def seeds_of(plan: RacePlan) -> str:
    return f"{plan.race.seeds} seed{'s' * (plan.race.seeds > 1)}"


def unit_of(plan: RacePlan) -> str:
    """The unit that training is counted in: tokens, texts, words."""
    task = plan.prepared.task
    return task.race_unit or task.unit


def effort(plan: RacePlan) -> str:
    """400k training tokens."""
    what = {"tokens": f"training {unit_of(plan)}", "flops": "training FLOPs", "minutes": "minutes of training"}
    return f"{short(plan.budget.amount)} {what[plan.budget.kind]}"


def _above(row: dict[str, Any]) -> str:
    share = row.get("relative_excess")
    return "" if share is None else f", {share:.1%} above the best possible"


def _chances(row: dict[str, Any]) -> str:
    known = {what: row["against_best"][f"by_{what}"] for what in ("seed", "document")}
    return ", ".join(f"{chance(p)} by {what}" for what, p in known.items() if p is not None)


def chance(p: float) -> str:
    """A bootstrap of 10,000 samples resolves no smaller p-value than 0.0001."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def join(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def short(value: float | None) -> str:
    """12.3k, 4.56G."""
    if value is None:
        return "–"
    for sign, size in UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"
