"""`elman.inspect`: what layers do before they are trained. `elman inspect` has the same for the command line."""

from elman.inspection.gradient_decay import DEFAULT_LAYERS, LENGTH, WIDTH, UntrainedLayer
from elman.inspection.gradients import gradient_decay_figure
from elman.inspection.labs.permutation import permutation_figure, permutation_table
from elman.inspection.result import Inspection

__all__ = ["gradients", "permutation"]


def gradients(
    *layers: str, length: int = LENGTH, width: int = WIDTH, seed: int = 0, precision: str = "float32"
) -> Inspection:
    """How much of the gradient is left after each distance in time, for untrained layers: `"rnn"`,
    `"lstm:forget_bias=3"`, `"rnn:radius=1.2"`; by default a selection.

    Numbers: `gradient` (layer, distance), and of each layer the `factor` per step and a `verdict`.
    """
    parsed = [UntrainedLayer.parse(one) for one in layers or DEFAULT_LAYERS]
    return gradient_decay_figure(parsed, length, width, seed, precision)


def permutation() -> Inspection:
    """Whether the last output of each registered layer changes when all tokens before it are shuffled.

    Numbers, one for each layer: the relative `change`, and in words what it `sees`.
    """
    return permutation_figure(permutation_table())
