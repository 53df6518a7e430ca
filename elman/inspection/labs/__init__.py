"""Labs: the experiments of the lecture path by name, as `elman lab list` shows them."""

from elman.inspection.labs import (
    agreement_attraction,
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
    recall_distance,
    selection,
    word_order,
)
from elman.inspection.labs.lab import Lab, Report, find

_FILES = (
    back_off,
    hidden_state,
    gradient_distance,
    gates_on_not,
    recall_distance,
    agreement_attraction,
    word_order,
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
