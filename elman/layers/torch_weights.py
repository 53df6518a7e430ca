"""Converts recurrent layers to torch's modules."""

from collections.abc import Iterable

import torch
from torch import nn

from elman.errors import ConfigError
from elman.layers.recurrent import Recurrent

TORCH_MODULES = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


@torch.no_grad()
def to_torch(layers: Iterable[Recurrent]) -> nn.RNNBase:
    """A torch module (batch first) from stacked layers."""
    cells = [layer.cell for layer in layers]
    calls = []
    for cell in cells:
        if isinstance(call := cell.vendor(), str):
            raise ConfigError(f"no torch module computes this: {call}")
        calls.append(call)
    shapes = {(call.kernel, len(call.weights), cell.hidden_size) for call, cell in zip(calls, cells, strict=True)}
    widths = [cell.input_size for cell in cells[1:]]
    if len(shapes) != 1 or any(width != cells[0].hidden_size for width in widths):
        raise ConfigError(f"a torch module needs layers of one type and width, not {sorted(shapes)}")
    kernel, weights = calls[0]
    options = {"nonlinearity": kernel.removeprefix("rnn_")} if kernel.startswith("rnn") else {}
    module = TORCH_MODULES[kernel](
        cells[0].input_size,
        cells[0].hidden_size,
        num_layers=len(calls),
        bias=len(weights) == 4,
        batch_first=True,
        device=weights[0].device,
        dtype=weights[0].dtype,
        **options,
    )
    for theirs, call in zip(module.all_weights, calls, strict=True):
        for their, our in zip(theirs, call.weights, strict=True):
            their.copy_(our)
    return module
