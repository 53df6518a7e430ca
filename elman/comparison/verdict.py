"""The outcome in words: who, by how much, and how sure; never more than the numbers say."""

from collections.abc import Sequence
from typing import Any

from elman.comparison.plan import RacePlan
from elman.comparison.results import Found

UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
BEYOND = 5  # words between a verb and its noun that no short window holds
LUCKY = 0.6  # right forms that guessing may reach on a small sample
SOLVED = 0.9


def headline(found: Found) -> str:
    """The answer with its uncertainty, in a sentence or two."""
    rows = {row["entrant"]: row for row in found.rows}
    ranked = [name for name in found.verdict.order if rows[name]["place"] is not None]
    if not ranked:
        return "No answer: nobody reached the end."
    best = rows[ranked[0]]
    if len(ranked) == 1:
        return f"No race: only {best['entrant']} reached the end, with {score(found, best)}."
    if found.verdict.winner:
        second = rows[ranked[1]]
        return (
            f"Use {best['entrant']}: it wins with {score(found, best)}{_above(best)}. "
            f"Next is {second['entrant']} with {score(found, second)}; the difference is more than luck "
            f"({_chances(second)}{_seeds(best)})."
        )
    tied = found.verdict.tied
    beaten = [name for name in ranked if name not in tied]
    cheapest = min(tied, key=lambda name: rows[name].get("training_seconds") or float("inf"))
    why = found.verdict.comparisons[tied[1]].why
    told = f"No single winner: {join(tied)} cannot be told apart ({tied[0]} against {tied[1]}: {why}). "
    told += f"The best mean is {best['entrant']}'s: {score(found, best)}{_above(best)}. "
    if best["seeds"] > 1 or best["exact"]:
        told += f"{_beaten(beaten, tied)}{_unsure(found, rows)}Of those that lead, {cheapest} trains fastest."
    else:
        told += "Give --seeds 3 to learn whether the order is more than luck."
    return told


def _beaten(beaten: Sequence[str], tied: Sequence[str]) -> str:
    if not beaten:
        return ""
    return f"{join(beaten)} {'is' if len(beaten) == 1 else 'are'} surely behind {tied[0]}. "


def _unsure(found: Found, rows: dict[str, dict[str, Any]]) -> str:
    """Those whose intervals lie apart from the best's, so that only more seeds are wanting."""
    apart = [name for name in found.verdict.tied[1:] if not found.verdict.comparisons[name].overlap]
    if not apart:
        return ""
    seeds = max(rows[name]["seeds"] for name in found.verdict.tied)  # what is exact ran once
    shown = join([f"{name} ({number(found, rows[name]['score'])})" for name in apart])
    return f"{shown} may be behind, but {seeds} seeds are too few to be sure: --resume --seeds {2 * seeds} adds more. "


def staircase(found: Found) -> str:
    """Who fails beyond a few words and who does not, where the language knows what is right."""
    far = {
        row["entrant"]: _beyond(row["staircase"], BEYOND)
        for row in found.rows
        if row.get("staircase") and row["place"] is not None
    }
    known = {name: value for name, value in far.items() if value is not None}
    if not known:
        return ""
    fail = [name for name, value in known.items() if value <= LUCKY]
    hold = [name for name, value in known.items() if value >= SOLVED]
    told = f"At {BEYOND} or more words between a verb and the noun that decides its form"
    parts = []
    if hold:
        parts.append(
            f"{join(hold)} still {'finds' if len(hold) == 1 else 'find'} the right form ({_shares(known, hold)})"
        )
    if fail:
        parts.append(f"{join(fail)} {'guesses' if len(fail) == 1 else 'guess'} ({_shares(known, fail)})")
    between = [name for name in known if name not in hold and name not in fail]
    if between:
        parts.append(f"{join(between)} {'is' if len(between) == 1 else 'are'} in between ({_shares(known, between)})")
    return f"{told}, {'; '.join(parts)}."


def _beyond(steps: list[dict[str, Any]], least: int) -> float | None:
    far = [(step["accuracy"], step["words"]) for step in steps if step["value"] >= least]
    words = sum(count for _, count in far)
    return sum(share * count for share, count in far) / words if words else None


def _shares(known: dict[str, float], names: Sequence[str]) -> str:
    return ", ".join(f"{known[name]:.0%}" for name in names) + (" right" if len(names) else "")


def score(found: Found, row: dict[str, Any]) -> str:
    """2.041 nats per token (2.038 to 2.044 over its seeds)."""
    shown = number(found, row["score"])
    unit = found.measure.words
    interval = row["interval"]
    if row["exact"] or interval is None:
        return f"{shown} {unit}"
    low, high = (number(found, edge) for edge in interval)
    return f"{shown} {unit} ({low} to {high} over its seeds)"


def number(found: Found, value: float) -> str:
    """As the measure is read: shares in percent."""
    return f"{value:.1%}" if found.measure.percent else f"{value:.{found.measure.digits}f}"


def spread(found: Found, row: dict[str, Any]) -> str:
    """Standard deviation over seeds, in the unit of `number`; nothing where there is none."""
    if row["spread"] is None or row["exact"]:
        return ""
    return f"{100 * row['spread']:.2g}%" if found.measure.percent else f"{row['spread']:.2g}"


def seeds_of(plan: RacePlan) -> str:
    return f"{plan.race.seeds} seed{'s' * (plan.race.seeds > 1)}"


def unit_of(plan: RacePlan) -> str:
    """What training is counted in: tokens, texts, words."""
    return plan.prepared.task.race.unit


def effort(plan: RacePlan) -> str:
    """400k training tokens."""
    what = {"tokens": f"training {unit_of(plan)}", "flops": "training FLOPs", "minutes": "minutes of training"}
    return f"{short(plan.budget.amount)} {what[plan.budget.kind]}"


def _above(row: dict[str, Any]) -> str:
    share = row.get("relative_excess")
    return "" if share is None else f", {share:.1%} above the best possible"


def _chances(row: dict[str, Any]) -> str:
    against = row["against_best"]
    told = [
        f"{chance(against[f'by_{what}'])} by {what}"
        for what in ("seed", "document")
        if against[f"by_{what}"] is not None
    ]
    return ", ".join(told)


def chance(p: float) -> str:
    """No bootstrap of ten thousand draws can tell less than its own ten thousandth."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _seeds(row: dict[str, Any]) -> str:
    return "" if row["exact"] else f", {row['seeds']} seeds"


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
