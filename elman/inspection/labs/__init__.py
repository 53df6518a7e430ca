"""The lecture path as runnable experiments, by name: `elman lab list`."""

from elman.inspection.labs import (
    attractors,
    back_off,
    decoding,
    gates_on_not,
    gradient_distance,
    hidden_state,
    noisy_reversal,
    one_vector,
    padding,
    parallel_in_time,
    positions,
    remembering,
    selection,
    words_in_order,
)
from elman.inspection.labs.lab import Lab, Report, find

_FILES = (
    back_off,
    hidden_state,
    gradient_distance,
    gates_on_not,
    remembering,
    attractors,
    words_in_order,
    one_vector,
    noisy_reversal,
    padding,
    positions,
    selection,
    parallel_in_time,
    decoding,
)
LABS: dict[str, Lab] = {file.LAB.name: file.LAB for file in _FILES}

__all__ = ["LABS", "Lab", "Report", "find"]
