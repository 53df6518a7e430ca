"""The order in which a kernel takes the steps, as it writes it: up, down, or both, where a launch has two ways.

The states of a walk lie in one slot more than there are steps: slot t is beside step t, below it, and t + 1 above.
"""

from typing import NamedTuple


class Order(NamedTuple):
    first: str  # the step that is taken first
    now: str  # the step that is taken when `step` of them are done
    later: str  # the step after t; some step again after the last
    soon: str  # the step after that
    after: str  # the slot of the state after step t
    before: str  # the slot of the state before it


UP = Order("0", "step", "tl.minimum(t + 1, T - 1)", "tl.minimum(t + 2, T - 1)", "(t + 1)", "t")
DOWN = Order("(T - 1)", "T - 1 - step", "tl.maximum(t - 1, 0)", "tl.maximum(t - 2, 0)", "t", "(t + 1)")
BOTH = Order(  # `up` is 1 in programs that walk up and 0 in those that walk down
    "((1 - up) * (T - 1))",
    "up * step + (1 - up) * (T - 1 - step)",
    "tl.minimum(tl.maximum(t + 2 * up - 1, 0), T - 1)",
    "tl.minimum(tl.maximum(t + 4 * up - 2, 0), T - 1)",
    "(t + up)",
    "(t + 1 - up)",
)
