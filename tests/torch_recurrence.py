"""Layers with the weights of torch's recurrent modules."""

import torch
from torch import Tensor, nn

from elman.cells.gru import GRU
from elman.cells.lstm import LSTM
from elman.cells.rnn import RNN
from elman.layers import LAYERS, Recurrent


def from_torch(module: nn.RNNBase) -> list[Recurrent]:
    """One layer per layer of a unidirectional module without projection; its dropout is not converted."""
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
