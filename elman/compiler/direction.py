"""The order of steps in a Triton kernel, as source text: forward, backward, or both in a bidirectional launch.

States have one slot more than there are steps: slot t is before step t, slot t + 1 after it (in a forward walk).
"""

from typing import NamedTuple


class StepOrder(NamedTuple):
    first: str  # the step taken first
    current: str  # the step taken when `step` of them are done
    next: str  # the step after t, clamped to the sequence
    after_next: str  # the step after that, clamped
    slot_after: str  # the slot of the state after step t
    slot_before: str  # the slot of the state before it


UP = StepOrder("0", "step", "tl.minimum(t + 1, T - 1)", "tl.minimum(t + 2, T - 1)", "(t + 1)", "t")
DOWN = StepOrder("(T - 1)", "T - 1 - step", "tl.maximum(t - 1, 0)", "tl.maximum(t - 2, 0)", "t", "(t + 1)")
BOTH = StepOrder(  # `up` is 1 in programs that walk forward in time, 0 in those that walk backward
    "((1 - up) * (T - 1))",
    "up * step + (1 - up) * (T - 1 - step)",
    "tl.minimum(tl.maximum(t + 2 * up - 1, 0), T - 1)",
    "tl.minimum(tl.maximum(t + 4 * up - 2, 0), T - 1)",
    "(t + up)",
    "(t + 1 - up)",
)
