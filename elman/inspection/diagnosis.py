"""Diagnosis of gradient decay: vanishing, preserved or exploding, the rate per step, and usual remedies."""

from dataclasses import dataclass

import numpy as np

from elman.inspection.gradient_decay import GradientDecay

LOST = 1e-7  # relative to the start: below the resolution of float32 sums
PRESERVED, EXPLODED, OVER = 1e-2, 1e2, 200  # factors over 200 steps: between these two the gradient is preserved
REMEDIES = {
    "rnn": "use a gated cell (gru, lstm), or an orthogonal initialisation, {rnn: {orthogonal: true}}, and small inputs",
    "lstm": "open the forget gates at the start: {lstm: {forget_bias: 3}}",
    "gru": "open the update gates (--model gru:open.update=3 shows the effect), or use {lstm: {forget_bias: 3}}",
}
APPLIED = ("orthogonal=true", "forget_bias=3", "open.update=")  # remedies that the settings contain already
LSTM_LIKE = ("peephole", "layernorm-lstm", "coupled", "minlstm")
SKIP = "add a path around the cell: residual: true, or an attention or state space layer in the pattern"
CLIP = (
    "clip it (training.clip_grad_norm: 1), use a smaller or orthogonal initialisation ({orthogonal: true}) or a gated "
    "cell, or put a norm before each layer (model.norm: pre)"
)


@dataclass(frozen=True)
class Diagnosis:
    name: str
    verdict: str
    """vanishes, passes, explodes, or ends where the receptive field does"""
    rate: float
    """Factor per step, over the distances with a measurable gradient."""
    reach: int | None
    """Steps after which less than 1e-7 of the gradient is left; None where that never happens."""
    words: str


def diagnose(found: GradientDecay) -> Diagnosis:
    normal = found.norms > found.floor
    end = int(np.argmin(normal)) if not normal.all() else len(normal)  # measured up to the first underflow
    if end < 2:
        words = f"{found.name}: ends; it depends on no other token than its own."
        return Diagnosis(found.name, "ends", 0.0, 1, words)
    start, last = found.norms[1] if end > 1 else found.norms[0], found.norms[end - 1]
    rate = float((last / start) ** (1 / max(1, end - 2))) if end > 2 else float(last / found.norms[0])
    lost = np.flatnonzero(found.norms < LOST * start)
    reach = int(found.lags[lost[0]]) if len(lost) else None
    underflows = end < len(normal)
    left = 0.0 if underflows else float(last / start)
    factor = 0.0 if underflows else rate**OVER
    longest = int(found.lags[-1])
    if factor > EXPLODED:
        words = f"grows by {rate:.3g} per step, to {left:.0e} times its start over {longest} steps"
        return Diagnosis(found.name, "explodes", rate, reach, f"{found.name}: explodes; it {words}. Remedy: {CLIP}.")
    if factor >= PRESERVED:
        words = f"passes; over {longest} steps {left:.2g} of it is left."
        return Diagnosis(found.name, "passes", rate, reach, f"{found.name}: {words}")
    if underflows and last > PRESERVED * start:
        words = f"ends; it is zero beyond {end - 1} steps, the receptive field of the layer."
        return Diagnosis(found.name, "ends", rate, reach, f"{found.name}: {words}")
    half = np.log(0.5) / np.log(rate)
    decay = f"below 1e-7 after {reach}" if reach else f"{left:.2g} is left over {longest}"
    remedy = SKIP if any(setting in found.name for setting in APPLIED) else remedy_for(found.layer)
    words = f"vanishes; its half-life is {half:.2g} steps, {decay}. Remedy: {remedy}."
    return Diagnosis(found.name, "vanishes", rate, reach, f"{found.name}: {words}")


def remedy_for(layer: str) -> str:
    return REMEDIES.get("lstm" if layer in LSTM_LIKE else layer, SKIP)
