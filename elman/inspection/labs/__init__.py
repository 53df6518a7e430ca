"""Labs: the experiments of the lecture path by name, as `elman lab list` shows them."""

from importlib import import_module

from elman.inspection.labs.lab import Lab, Report, find

# The modules, in the order of `elman lab list`.
_FILES: tuple[str, ...] = ("back_off", "hidden_state", "gradient_distance", "gates_on_not", "recall_distance")
_FILES += ("agreement_attraction", "word_order", "one_vector", "noisy_reversal", "padding", "permutation", "selection")
_FILES += ("parallel_in_time", "decoding")
_LABS: list[Lab] = [import_module(f"{__name__}.{file}").LAB for file in _FILES]
LABS = {lab.name: lab for lab in _LABS}

__all__ = ["LABS", "Lab", "Report", "find"]
