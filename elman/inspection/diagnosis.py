"""Gradients through time in words: do they fade, pass or explode, how fast, and what usually helps."""

from dataclasses import dataclass

import numpy as np

from elman.inspection.gradient_decay import GradientDecay

LOST = 1e-7  # of the start: what float32 can no longer add to it
STEADY, GROWN, OVER = 1e-2, 1e2, 200  # what would be left of the start over 200 steps: between these it passes
HELP = {
    "rnn": "take a gated cell (gru, lstm), or start with {rnn: {orthogonal: true}} and small inputs",
    "lstm": "open the forget gates at the start: {lstm: {forget_bias: 3}}",
    "gru": "open the update gates (--model gru:open.update=3 shows what it brings), or take {lstm: {forget_bias: 3}}",
}
TAKEN = ("orthogonal=true", "forget_bias=3", "open.update=")  # remedies that a probe has had already
GATED = ("peephole", "layernorm-lstm", "coupled", "minlstm")
FARTHER = "let it pass beside the cell: residual: true, or an attention or state space layer in the pattern"
EXPLODING = (
    "clip it (training.clip_grad_norm: 1), start smaller or orthogonal ({orthogonal: true}), take a gated cell, or "
    "put a norm before each layer (model.norm: pre)"
)


@dataclass(frozen=True)
class Diagnosis:
    name: str
    verdict: str
    """vanishes, passes, explodes, or ends where the layer sees no further"""
    rate: float
    """Factor of each step, over the distances where there is something to measure."""
    reach: int | None
    """Steps until less than a ten-millionth is left; None where that never comes."""
    words: str


def diagnose(found: GradientDecay) -> Diagnosis:
    real = found.norms > found.floor
    end = int(np.argmin(real)) if not real.all() else len(real)  # the first that is lost ends what can be measured
    if end < 2:
        words = f"{found.name}: ends; it sees no other token than its own."
        return Diagnosis(found.name, "ends", 0.0, 1, words)
    start, last = found.norms[1] if end > 1 else found.norms[0], found.norms[end - 1]
    rate = float((last / start) ** (1 / max(1, end - 2))) if end > 2 else float(last / found.norms[0])
    lost = np.flatnonzero(found.norms < LOST * start)
    reach = int(found.lags[lost[0]]) if len(lost) else None
    left = 0.0 if end < len(real) else float(last / start)
    far = 0.0 if end < len(real) else rate**OVER
    longest = int(found.lags[-1])
    if far > GROWN:
        words = f"grows by {rate:.3g} at each step, to {left:.0e} times its start over {longest} steps"
        return Diagnosis(found.name, "explodes", rate, reach, f"{found.name}: explodes; it {words}. Help: {EXPLODING}.")
    if far >= STEADY:
        words = f"passes; over {longest} steps {left:.2g} of it arrives."
        return Diagnosis(found.name, "passes", rate, reach, f"{found.name}: {words}")
    if end < len(real) and last > STEADY * start:
        words = f"ends; from more than {end - 1} steps back nothing arrives at all: the layer does not see so far."
        return Diagnosis(found.name, "ends", rate, reach, f"{found.name}: {words}")
    half = np.log(0.5) / np.log(rate)
    gone = f"less than a ten-millionth is left after {reach}" if reach else f"{left:.2g} is left over {longest}"
    helps = FARTHER if any(taken in found.name for taken in TAKEN) else remedy(found.layer)
    words = f"vanishes; half is gone after {half:.2g} steps, {gone}. Help: {helps}."
    return Diagnosis(found.name, "vanishes", rate, reach, f"{found.name}: {words}")


def remedy(layer: str) -> str:
    family = "lstm" if layer in GATED else layer
    return HELP.get(family, FARTHER)
