"""Sequence layers. Importing a file here puts its layers into LAYERS."""

from elman.layers import (  # noqa: F401
    bidirectional,
    convolution,
    linear_attention,
    mamba,
    minimal,
    recurrent,
    recurrent_stack,
    s4,
    window,
)
from elman.layers.base import LAYERS, SequenceLayer, TwoWayLayer, two_way
from elman.layers.recurrent import Recurrent

__all__ = ["LAYERS", "Recurrent", "SequenceLayer", "TwoWayLayer", "two_way"]
