"""Converts recurrent layers to torch's modules, and back."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from elman.cells.gru import GRU
from elman.cells.lstm import LSTM
from elman.cells.rnn import RNN
from elman.errors import ConfigError
from elman.layers.base import LAYERS
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


def from_torch(module: nn.RNNBase) -> list[Recurrent]:
    """One layer per layer of a unidirectional module without projection; its dropout is not converted."""
    if module.bidirectional or module.proj_size:
        raise ConfigError("a torch module with two directions or a projection has no layers here")
    name = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn"}[type(module)]
    options = {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
    layers = []
    for index in range(module.num_layers):
        weights = [weight.detach() for weight in module.all_weights[index]]
        config = LAYERS[name].Config.make({"hidden_size": module.hidden_size, "bias": module.bias, **options})
        layer = LAYERS[name](config, weights[0].shape[1]).to(weights[0])
        assert isinstance(layer, Recurrent)
        assert isinstance(layer.cell, RNN | GRU | LSTM)
        _fill(layer.cell, *weights)
        layers.append(layer)
    return layers


@torch.no_grad()
def _fill(cell: RNN | GRU | LSTM, input_weight: Tensor, past_weight: Tensor, *biases: Tensor) -> None:
    cell.from_input.weight.copy_(input_weight)
    cell.from_past.weight.copy_(past_weight)
    if biases:
        cell.from_input.bias.copy_(biases[0] + biases[1])
        if isinstance(cell, GRU) and cell.past_bias is not None:
            # The reset gate multiplies the candidate's recurrent bias, so the two biases cannot be merged.
            candidate = slice(2 * cell.hidden_size, None)
            cell.from_input.bias[candidate] = biases[0][candidate]
            cell.past_bias.copy_(biases[1][candidate])
