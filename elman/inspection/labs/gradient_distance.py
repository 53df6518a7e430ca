"""Lab: vanishing gradients at initialisation."""

import math

from elman.figures.panels import Lines
from elman.inspection.gradient_decay import LENGTH, WIDTH, UntrainedLayer
from elman.inspection.gradients import gradient_decay_figure
from elman.inspection.labs.lab import Lab, Progress, Result

LAYERS = (
    "rnn",
    "rnn:radius=2",
    "rnn:orthogonal=true",
    "rnn:orthogonal=true,scale=0.05",
    "gru",
    "lstm:forget_bias=0",
    "lstm:forget_bias=1",
    "gru:open.update=3",
    "attention",
)


def experiment(
    seed: int,
    progress: Progress,
    *,
    size: int = WIDTH,
    length: int = LENGTH,
    distance: int = 50,
    forget_bias: float = 3.0,
) -> Result:
    names = [*LAYERS[:7], f"lstm:forget_bias={forget_bias:g}", *LAYERS[7:]]
    layers = [UntrainedLayer.parse(name) for name in dict.fromkeys(names)]
    figure = gradient_decay_figure(layers, max(length, distance + 1), size, seed)
    (panel,) = figure.panels
    assert isinstance(panel, Lines)
    norms = {name: norm[distance] for name, (_, norm) in panel.lines.items()}
    measured = {f"{name}, log10 norm at distance {distance}": math.log10(norm) for name, norm in norms.items()}
    return Result([figure], measured)


LAB = Lab(
    "gradient-distance",
    "Backpropagation through time",
    "How large is the gradient of the last output by an input 50 steps earlier, before any training?",
    "In a plain RNN it vanishes, and in an LSTM or GRU with the default initialisation of PyTorch it vanishes too: "
    "gates only help when they are open. With a forget bias of 3 the LSTM preserves it almost completely. "
    "Attention has the same gradient at every distance.",
    {
        "rnn, log10 norm at distance 50": (-19, -15.5),
        "rnn:orthogonal=true, log10 norm at distance 50": (-8, -6.5),
        "gru, log10 norm at distance 50": (-12.5, -11),
        "lstm:forget_bias=0, log10 norm at distance 50": (-13, -11),
        "lstm:forget_bias=3, log10 norm at distance 50": (-2.2, -1),
        "attention, log10 norm at distance 50": (-3.2, -2.4),
    },
    experiment,
    "A spectral radius above one does not imply explosion, because the tanh saturates; and an orthogonal matrix "
    "does not help where large inputs saturate it: with inputs scaled by 0.05 its gradient reaches far.",
    try_next={
        "size=256": "Does a wider state carry the gradient further?",
        "forget_bias=6": "How much further does a forget gate reach that is almost always open?",
        "distance=150": "Which layers still have a gradient after 150 steps?",
    },
)
