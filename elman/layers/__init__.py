"""Sequence layers. Importing a module here registers its layers in LAYERS."""

from elman.layers import (
    attention,
    bidirectional,
    experts,
    feedforward,
    linear_attention,
    mamba,
    minimal,
    past_inputs,
    positions,
    recurrent,
    s4,
)
from elman.layers.base import LAYERS, SequenceLayer, TwoWayLayer, two_way
from elman.layers.experts import auxiliary_loss
from elman.layers.recurrent import Recurrent
