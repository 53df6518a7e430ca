"""Sequence layers. Importing a file here puts its layers into LAYERS."""

from elman.layers import (  # noqa: F401
    linear_attention,
    mamba,
    recurrent,
    recurrent_stack,
    s4,
)
from elman.layers.base import LAYERS, SequenceLayer
from elman.layers.recurrent import Recurrent

__all__ = ["LAYERS", "Recurrent", "SequenceLayer"]
