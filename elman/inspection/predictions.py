"""Predictions along a text: surprisal and entropy of tokens, most likely outcomes, class probabilities, saliency."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from elman.errors import ConfigError, nearest
from elman.figures.panels import SHARE, Bars, ColouredText, Curve, Lines, Panel, Values, as_array
from elman.figures.provenance import carries_call
from elman.inspection.inspected_text import InspectedText
from elman.inspection.result import Inspection, Numbers
from elman.inspection.token_gradients import Saliency, saliency, saliency_panel, target_outcome
from elman.ops import taps

TOP = 5  # outcomes that are listed
CLASSES = 8  # curves of class probabilities: the most likely classes at the end


class Prediction(NamedTuple):
    """At one position."""

    after: str  # the token read last
    observed: str | None  # the true outcome, where known
    bits: float  # surprisal of the true outcome; where unknown, of the most likely
    rank: int  # of that outcome; 1 is the most likely
    entropy: float  # of the predicted distribution, in bits: the expected surprisal
    likeliest: list[tuple[str, float]]


def predictions(inspected: InspectedText) -> list[Prediction]:
    """At every position with scores."""
    log_probs = inspected.log_probabilities().double()
    found = []
    for position, (token, logs) in enumerate(zip(labels(inspected, len(log_probs)), log_probs, strict=True)):
        known = position < len(inspected.truth)
        outcome = int(inspected.truth[position]) if known else int(logs.argmax())
        values, ids = logs.topk(min(TOP, len(logs)))
        best = [(inspected.outcome(int(id)), float(value.exp())) for id, value in zip(ids, values, strict=True)]
        entropy = -float((logs.exp() * logs).nan_to_num(0.0).sum()) / math.log(2)
        bits, rank = -float(logs[outcome]) / math.log(2), int((logs > logs[outcome]).sum()) + 1
        found.append(Prediction(token, inspected.outcome(outcome) if known else None, bits, rank, entropy, best))
    return found


@carries_call
def prediction_figure(
    inspected: InspectedText,
    subtitle: str = "",
    position: int = -1,
    contrast: str | Sequence[str] = (),
    changes: Mapping[str, float] | None = None,
) -> Inspection:
    """The panels that suit the goal of a model. `contrast` are two outcomes, as "was,were"; `changes` are edits of
    activations, whose predictions are shown beside the unedited ones."""
    panels: list[Panel] = []
    notes = [inspected.caution] if inspected.caution else []
    if inspected.goal == "value":
        if contrast:
            raise ConfigError("a number has no outcomes to contrast; leave --contrast out")
        attributed = attribution(inspected, position)
        panels = [value_panel(inspected, changes), saliency_panel(*attributed)]
        values = inspected.scores()[:, 0]
        numbers = {"number": Numbers.of(values, token=labels(inspected, len(values)))} | saliency_numbers(attributed[0])
        return Inspection("Predictions", panels, notes, subtitle, numbers=numbers)
    found = predictions(inspected)
    numbers = prediction_numbers(inspected, found)
    if inspected.goal in ("next", "own"):
        panels += surprisal_panels(found)
        notes += surprisal_notes(found)
        panels += ngram_order_panels(inspected)
    elif inspected.goal == "label":
        panels += class_probability_panels(inspected)
    else:
        panels.append(tag_panel(found))
    if contrast:
        panels.append(contrast_panel(inspected, contrast))
    if changes:
        panels.append(intervention_panel(inspected, changes, position))
    if inspected.goal != "own" and any(parameter.requires_grad for parameter in inspected.model.parameters()):
        attributed = attribution(inspected, position)
        panels.append(saliency_panel(*attributed))
        numbers |= saliency_numbers(attributed[0])
    return Inspection("Predictions", panels, notes, subtitle, numbers=numbers)


def labels(inspected: InspectedText, count: int) -> list[str]:
    """The token read last before each prediction; the whole text where there is one for all of it."""
    tokens = inspected.main
    return tokens if len(tokens) == count else [" ".join(tokens)] * count


def prediction_numbers(inspected: InspectedText, found: Sequence[Prediction]) -> dict[str, Numbers]:
    """Of each prediction, and the probability of every outcome: a class or tag by name, a token by its id."""
    axes = {"token": [one.after for one in found]}
    probabilities = inspected.log_probabilities().exp()
    names: Sequence[str | int] = range(probabilities.shape[1])
    names = names if inspected.goal in ("next", "own") else [inspected.outcome(int(number)) for number in names]
    return {
        "observed": Numbers(["" if one.observed is None else one.observed for one in found], axes),
        "likeliest": Numbers([one.likeliest[0][0] for one in found], axes),
        "surprisal": Numbers.of([one.bits for one in found], **axes),
        "entropy": Numbers.of([one.entropy for one in found], **axes),
        "rank": Numbers.of([one.rank for one in found], **axes),
        "probability": Numbers.of(probabilities, **axes, outcome=names),
    }


def saliency_numbers(found: Saliency) -> dict[str, Numbers]:
    return {
        "gradient × input": Numbers.of(found.gradient, read=found.tokens),
        "leave-one-out": Numbers.of(found.occlusion, read=found.tokens),
    }


def surprisal_notes(found: Sequence[Prediction]) -> list[str]:
    known = [one for one in found if one.observed is not None]
    count = max(1, len(known))
    bits, entropy = sum(one.bits for one in known) / count, sum(one.entropy for one in known) / count
    top1 = sum(one.rank == 1 for one in known) / count
    return [
        f"{len(known)} tokens: mean surprisal {bits:.2f} bits, mean entropy (expected surprisal) {entropy:.2f} bits, "
        f"top-1 accuracy {top1:.0%}. Below each token is the most likely one, if it differs."
    ]


def surprisal_panels(found: Sequence[Prediction]) -> list[Panel]:
    known = [one for one in found if one.observed is not None]
    if not known:
        return [likeliest_panel(found[-1])]
    names = [one.observed or "" for one in known]
    guesses = ["" if one.rank == 1 else one.likeliest[0][0] for one in known]
    bits, xs = as_array([min(one.bits, 99.0) for one in known]), range(len(known))
    curves: dict[str, Curve] = {"surprisal": (xs, bits), "entropy": (xs, [one.entropy for one in known])}
    panels: list[Panel] = [
        ColouredText(names, bits, guesses, title="Surprisal of each token", quantity="surprisal"),
        Lines(curves, y_label="bits", ticks=names, title="Surprisal and entropy of the prediction"),
    ]
    return [*panels, likeliest_panel(found[-1])] if found[-1].observed is None else panels


def likeliest_panel(one: Prediction) -> Bars:
    names, values = zip(*one.likeliest, strict=True)
    return probability_bars(names, {"probability": values}, f"Most likely after {one.after!r}")


def probability_bars(names: Sequence[str], bars: Mapping[str, Values], title: str) -> Bars:
    return Bars(names, bars, "probability", (0, 1), title=title, quantity="probability")


def ngram_order_panels(inspected: InspectedText) -> list[Panel]:
    """Of n-gram models: the order of the n-gram behind each probability, after back-off."""
    if not hasattr(inspected.model, "tables"):
        return []
    orders = as_array(inspected.record("order")["order"][0])[1:]  # without the start token
    return [ColouredText(inspected.main[1:], orders, title="Order of the n-gram used (back-off)", quantity="order")]


def class_probability_panels(inspected: InspectedText) -> list[Panel]:
    probs = as_array(inspected.log_probabilities().exp())
    order = np.argsort(-probs[-1])[:CLASSES]
    names = [inspected.outcome(int(number)) for number in order]
    if len(probs) == 1:
        return [probability_bars(names, {"probability": probs[0, order]}, "Class probabilities of the whole text")]
    lines = {name: (range(len(probs)), probs[:, number]) for name, number in zip(names, order, strict=True)}
    title = "Class probabilities after each token"
    return [Lines(lines, y_label="probability", ticks=inspected.main, limits=SHARE, title=title)]


def value_panel(inspected: InspectedText, changes: Mapping[str, float] | None = None) -> Panel:
    """The predicted number, after each token of a causal model; also with edits."""
    values = {"number": as_array(inspected.scores()[:, 0])}
    if changes:
        with taps.edit(dict(changes)):
            values["edited"] = as_array(inspected.scores()[:, 0])
    if len(values["number"]) == 1:
        title = "Predicted number of the whole text"
        return Bars(["the whole text"], values, "number", title=title, quantity="influence")
    lines = {name: (range(len(one)), one) for name, one in values.items()}
    return Lines(lines, y_label="number", ticks=inspected.main, title="Predicted number after each token")


def tag_panel(found: Sequence[Prediction]) -> ColouredText:
    values = as_array([one.likeliest[0][1] for one in found])
    tags = [one.likeliest[0][0] for one in found]
    title = "Most likely tag of each word on its own, and its probability"
    return ColouredText([one.after for one in found], values, tags, title=title, quantity="probability")


def contrast_panel(inspected: InspectedText, contrast: str | Sequence[str]) -> Lines:
    """Log-odds of two outcomes after each token."""
    names = [name.strip() for name in contrast.split(",")] if isinstance(contrast, str) else list(contrast)
    if len(names) != 2:
        raise ConfigError(f"contrast {contrast!r}: two outcomes with a comma between them, as was,were")
    logs = inspected.log_probabilities().double()
    one, other = (outcome_of(inspected, name, logs.shape[-1]) for name in names)
    values = as_array(logs[:, one] - logs[:, other]) / math.log(2)
    title = f"Log-odds of {names[0]!r} (above zero) against {names[1]!r} (below)"
    lines = {f"{names[0]} against {names[1]}": (range(len(values)), values)}
    return Lines(lines, y_label="bits", ticks=inspected.main, title=title)


def outcome_of(inspected: InspectedText, name: str, count: int) -> int:
    known = {inspected.outcome(number): number for number in range(count)}
    if name not in known:
        raise ConfigError(f"{name!r} is none of the {count} outcomes of this model{nearest(name, known)}")
    return known[name]


def intervention_panel(inspected: InspectedText, changes: Mapping[str, float], position: int = -1) -> Bars:
    """The most likely outcomes at a position, without and with the edits."""
    plain = inspected.log_probabilities()[position].exp()
    with taps.edit(dict(changes)):
        edited = inspected.log_probabilities()[position].exp()
    top = [part.topk(min(TOP, len(part))).indices.tolist() for part in (plain, edited)]
    ids = list(dict.fromkeys([*top[0], *top[1]]))
    names = [inspected.outcome(id) for id in ids]
    bars = {"unedited": as_array(plain[ids]), "edited": as_array(edited[ids])}
    return probability_bars(names, bars, f"With {', '.join(f'{site} = {value:g}' for site, value in changes.items())}")


def attribution(inspected: InspectedText, position: int = -1) -> tuple[Saliency, str]:
    """Saliency of the outcome at a position, and the name of the outcome."""
    scores = inspected.scores()
    if inspected.goal == "next" and position == -1 and 0 < len(inspected.truth) < len(scores):
        position = len(inspected.truth) - 1  # the last observed token
    outcome = target_outcome(inspected, scores, position)
    return saliency(inspected, position, outcome), inspected.outcome(outcome)
