"""Lab: how far back gradients reach, before any training."""

import math

from elman.inspection.gradient_decay import UntrainedLayer, gradient_decay
from elman.inspection.gradients import gradient_decay_figure
from elman.inspection.labs.lab import Expected, Lab, Progress, Result

PROBES = (
    "rnn",
    "rnn:radius=2",
    "rnn:orthogonal=true",
    "rnn:orthogonal=true,scale=0.05",
    "gru",
    "lstm:forget_bias=0",
    "lstm:forget_bias=1",
    "lstm:forget_bias=3",
    "gru:open.update=3",
    "attention",
)
ASKED = ("rnn", "rnn:orthogonal=true", "gru", "lstm:forget_bias=0", "lstm:forget_bias=3", "attention")


def experiment(seed: int, progress: Progress) -> Result:
    probes = [UntrainedLayer.parse(name) for name in PROBES]
    measured = {}
    for number, name in enumerate(ASKED):
        found = gradient_decay(UntrainedLayer.parse(name), seed=seed)
        measured[f"{name}, power of ten at distance 50"] = math.log10(found.at(50))
        progress(name, number + 1, len(ASKED), 0.0)
    return Result([gradient_decay_figure(probes, seed=seed)], measured)


LAB = Lab(
    "gradient-distance",
    "Backpropagation through time",
    "How much of a wish at the end reaches a word 50 steps before it, in a network that has learnt nothing yet?",
    "In a plain RNN nothing, and in an LSTM or GRU as torch starts them nothing either: gates help only when they are "
    "open. With a forget bias of 3 the LSTM passes almost all of it on. Attention reaches every distance alike.",
    {
        "rnn, power of ten at distance 50": Expected(-19, -15.5),
        "rnn:orthogonal=true, power of ten at distance 50": Expected(-8, -6.5),
        "gru, power of ten at distance 50": Expected(-12.5, -11),
        "lstm:forget_bias=0, power of ten at distance 50": Expected(-13, -11),
        "lstm:forget_bias=3, power of ten at distance 50": Expected(-2.2, -1),
        "attention, power of ten at distance 50": Expected(-3.2, -2.4),
    },
    experiment,
    "A spectral radius above one does not mean explosion until it beats the tanh, and an orthogonal matrix does not "
    "help where large inputs saturate it: with inputs scaled by 0.05 it reaches far.",
)
