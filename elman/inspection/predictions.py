"""What a model expects while it reads: surprise at what came, the likeliest outcomes, the verdict so far, and why."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError, nearest
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, Lines, Panel, numbers
from elman.figures.provenance import carries_call
from elman.inspection.inspected_text import InspectedText
from elman.inspection.saliency import chosen, saliency, saliency_panel
from elman.inspection.token_gradients import log_chances
from elman.ops import taps

LIKELIEST = 5
LABELS = 8  # curves of a verdict: the likeliest at the end


class Prediction(NamedTuple):
    """At one position."""

    after: str
    """The token that was read there."""
    came: str | None
    """What came, where that is known."""
    bits: float
    """Surprisal of what came; without it, of the likeliest."""
    rank: int
    """1 for the likeliest outcome, …"""
    entropy: float
    """Bits that were to be expected."""
    likeliest: list[tuple[str, float]]


def predictions(reading: InspectedText, likeliest: int = LIKELIEST) -> list[Prediction]:
    """At every position that has scores."""
    with inference_mode(reading.model):
        chances = log_chances(reading, reading.run(1))[0].double()
    tokens = reading.main if len(reading.main) == len(chances) else [" ".join(reading.main)] * len(chances)
    found = []
    for place, (token, logs) in enumerate(zip(tokens, chances, strict=True)):
        known = place < len(reading.truth)
        outcome = int(reading.truth[place]) if known else int(logs.argmax())
        values, ids = logs.topk(min(likeliest, len(logs)))
        best = [(reading.outcome(int(id)), float(value.exp())) for id, value in zip(ids, values, strict=True)]
        shares = logs.exp()
        entropy = -float((shares * logs).nan_to_num(0.0).sum()) / math.log(2)
        bits, rank = -float(logs[outcome]) / math.log(2), int((logs > logs[outcome]).sum()) + 1
        found.append(Prediction(token, reading.outcome(outcome) if known else None, bits, rank, entropy, best))
    return found


@carries_call
def prediction_figure(
    reading: InspectedText,
    of: str = "",
    place: int = -1,
    contrast: Sequence[str] = (),
    changes: Mapping[str, float] | None = None,
) -> Figure:
    """What is worth seeing for the goal of a model. `changes` are edits, whose effect is shown beside the plain run."""
    panels: list[Panel] = []
    notes = [reading.caution] if reading.caution else []
    if reading.goal == "value":
        if contrast:
            raise ConfigError("a number has no outcomes to contrast; leave --contrast out")
        panels.append(value_panel(reading, changes))
        return Figure("What it predicts while it reads", [*panels, why(reading, place)], notes, of)
    found = predictions(reading)
    if reading.goal in ("next", "own"):
        panels += surprise_panels(reading, found)
        known = [one for one in found if one.came is not None]
        mean = sum(one.bits for one in known) / max(1, len(known))
        expected = sum(one.entropy for one in known) / max(1, len(known))
        first = sum(one.rank == 1 for one in known) / max(1, len(known))
        notes.append(
            f"{len(known)} tokens, {mean:.2f} bits each where {expected:.2f} were expected; "
            f"{first:.0%} of them were the likeliest. Under each token stands what was expected instead of it, if "
            "anything else."
        )
        panels += order_panels(reading)
    elif reading.goal == "label":
        panels += verdict_panels(reading)
    else:
        panels.append(tag_panel(found))
    if contrast:
        panels.append(contrast_panel(reading, contrast))
    if changes:
        panels.append(edited_panel(reading, changes, place))
    if reading.goal != "own" and any(parameter.requires_grad for parameter in reading.model.parameters()):
        panels.append(why(reading, place))
    return Figure("What it expects while it reads", panels, notes, of)


def surprise_panels(reading: InspectedText, found: Sequence[Prediction]) -> list[Panel]:
    known = [one for one in found if one.came is not None]
    if not known:
        return [likeliest_panel(found[-1])]
    names = [one.came or "" for one in known]
    guesses = ["" if one.rank == 1 else one.likeliest[0][0] for one in known]
    bits = numbers([min(one.bits, 99.0) for one in known])
    panels: list[Panel] = [
        ColouredText(names, bits, guesses, title="Surprise at each token", quantity="surprisal"),
        Lines(
            {
                "surprisal": (np.arange(len(known)), bits),
                "expected (entropy)": (np.arange(len(known)), numbers([one.entropy for one in known])),
            },
            y="bits",
            ticks=names,
            title="Bits at each token",
        ),
    ]
    return [*panels, likeliest_panel(found[-1])] if found[-1].came is None else panels


def likeliest_panel(one: Prediction) -> Bars:
    names, chances = zip(*one.likeliest, strict=True)
    title = f"The likeliest after {one.after!r}"
    return Bars(names, {"probability": numbers(chances)}, "probability", (0, 1), title=title, quantity="probability")


def order_panels(reading: InspectedText) -> list[Panel]:
    """Of n-grams: how long the one was that each token's probability came from."""
    if not hasattr(reading.model, "tables"):
        return []
    with inference_mode(reading.model), taps.record("order") as seen:
        reading.run(1)
    orders = numbers(seen["order"][0])[1:]  # the first token begins the text
    title = "Length of the n-gram that each token's probability came from"
    return [ColouredText(reading.main[1:], orders, title=title, quantity="order")]


def verdict_panels(reading: InspectedText) -> list[Panel]:
    with inference_mode(reading.model):
        chances = log_chances(reading, reading.run(1))[0].exp().double().cpu().numpy()
    order = np.argsort(-chances[-1])[:LABELS]
    names = [reading.outcome(int(number)) for number in order]
    if len(chances) == 1:
        bars = {"probability": chances[0, order]}
        return [Bars(names, bars, "probability", (0, 1), title="Verdict on the whole text", quantity="probability")]
    places = np.arange(len(chances))
    lines = {name: (places, chances[:, number]) for name, number in zip(names, order, strict=True)}
    title = "Verdict after each token"
    return [Lines(lines, y="probability", ticks=reading.main, limits=(-0.03, 1.03), title=title)]


def value_panel(reading: InspectedText, changes: Mapping[str, float] | None) -> Panel:
    """The predicted number, after each token where the model is causal; also with edits."""
    with inference_mode(reading.model):
        rows = {"number": numbers(reading.run(1)[0, :, 0])}
        if changes:
            with taps.edit(dict(changes)):
                rows["edited"] = numbers(reading.run(1)[0, :, 0])
    if len(rows["number"]) == 1:
        return Bars(["the whole text"], rows, "number", title="The number of the whole text", quantity="influence")
    lines = {name: (np.arange(len(values)), values) for name, values in rows.items()}
    return Lines(lines, y="number", ticks=reading.main, title="The number after each token")


def tag_panel(found: Sequence[Prediction]) -> ColouredText:
    values = numbers([one.likeliest[0][1] for one in found])
    tags = [one.likeliest[0][0] for one in found]
    title = "The likeliest tag of each word by itself, and how likely it is"
    return ColouredText([one.after for one in found], values, tags, title=title, quantity="probability")


def contrast_panel(reading: InspectedText, names: Sequence[str]) -> Lines:
    """How much more likely one outcome is than another, after each token."""
    with inference_mode(reading.model):
        logs = log_chances(reading, reading.run(1))[0].double()
    one, other = (outcome_of(reading, name, logs.shape[-1]) for name in names)
    values = (logs[:, one] - logs[:, other]).cpu().numpy() / math.log(2)
    title = f"For {names[0]!r} (above zero) or {names[1]!r} (below)"
    shown = {f"{names[0]} against {names[1]}": (np.arange(len(values)), values)}
    return Lines(shown, y="bits", ticks=reading.main, title=title)


def outcome_of(reading: InspectedText, name: str, count: int) -> int:
    known = {reading.outcome(number): number for number in range(count)}
    if name not in known:
        raise ConfigError(f"{name!r} is none of the {count} outcomes of this model{nearest(name, known)}")
    return known[name]


def edited_panel(reading: InspectedText, changes: Mapping[str, float], place: int = -1) -> Bars:
    """The likeliest outcomes at a position, as they are and after the edits."""
    with inference_mode(reading.model):
        plain = log_chances(reading, reading.run(1))[0, place].exp()
        with taps.edit(dict(changes)):
            edited = log_chances(reading, reading.run(1))[0, place].exp()
    ids = torch.cat([part.topk(min(LIKELIEST, len(part))).indices for part in (plain, edited)])
    ids = _once(ids)
    names = [reading.outcome(int(id)) for id in ids]
    bars = {"as it is": numbers(plain[ids]), "edited": numbers(edited[ids])}
    told = ", ".join(f"{site} = {value:g}" for site, value in changes.items())
    return Bars(names, bars, "probability", (0, 1), title=f"With {told}", quantity="probability")


def why(reading: InspectedText, place: int = -1) -> Bars:
    """What the answer at a position rests on."""
    with inference_mode(reading.model):
        scores = reading.run(1)
    if reading.goal == "next" and place == -1 and 0 < len(reading.truth) < scores.shape[1]:
        place = len(reading.truth) - 1  # the last token that came, not the one that nobody knows
    outcome = chosen(reading, scores, place)
    return saliency_panel(saliency(reading, place, outcome), reading.outcome(outcome))


def _once(ids: Tensor) -> Tensor:
    return torch.tensor(list(dict.fromkeys(ids.tolist())), device=ids.device)
