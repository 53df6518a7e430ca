"""Sequence layers. Importing a file here puts its layers into LAYERS."""

from elman.layers import bidirectional, convolution, minimal, recurrent, recurrent_stack, window  # noqa: F401
from elman.layers.base import LAYERS, SequenceLayer, TwoWayLayer, two_way
from elman.layers.recurrent import Recurrent

__all__ = ["LAYERS", "Recurrent", "SequenceLayer", "TwoWayLayer", "two_way"]
