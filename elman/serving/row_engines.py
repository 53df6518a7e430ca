"""Chooses what computes the rows of a model: compiled steps on a CPU, CUDA graphs, or torch."""

from typing import Any

from elman.serving.rows import Rows, TorchRows


def rows_for(model: Any, config: Any) -> Rows:
    return TorchRows(model)
