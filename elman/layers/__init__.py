"""Sequence layers. Importing a file here puts its layers into LAYERS."""

from elman.layers import attention, experts, feedforward, positions, recurrent, recurrent_stack  # noqa: F401
from elman.layers.base import LAYERS, SequenceLayer
from elman.layers.recurrent import Recurrent

__all__ = ["LAYERS", "Recurrent", "SequenceLayer"]
