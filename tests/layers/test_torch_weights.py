"""Weight conversion to and from torch modules: equal outputs, states and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers import LAYERS, Recurrent
from elman.layers.torch_weights import from_torch, to_torch

KINDS = [(nn.RNN, {}), (nn.RNN, {"nonlinearity": "relu"}), (nn.GRU, {}), (nn.LSTM, {})]
kinds = pytest.mark.parametrize(("kind", "options"), KINDS)
biases = pytest.mark.parametrize("bias", [True, False])
depths = pytest.mark.parametrize("num_layers", [1, 3])


def compare(module: nn.RNNBase, layers: list[Recurrent]) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 4, dtype=torch.float64)
    theirs, their_state = module(x)
    states: list[Any] = []
    ours = x
    for layer in layers:
        ours, state = layer(ours)
        states.append(state if isinstance(state, Tensor) else torch.stack(state))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    stacked = torch.stack(states, dim=-3)  # torch: (layers, batch, width), for an lstm once for each part
    their_stacked = their_state if isinstance(their_state, Tensor) else torch.stack(their_state)
    torch.testing.assert_close(stacked, their_stacked, atol=1e-10, rtol=1e-10)
    found = []
    for outputs, state, weights in (
        (theirs, their_stacked, [w for names in module.all_weights for w in names[:3]]),
        (ours, stacked, [w for layer in layers for w in _in_torch_order(layer)]),
    ):
        found.append(torch.autograd.grad((outputs * weight).sum() + (state**2).sum(), [x, *weights], retain_graph=True))
    torch.testing.assert_close(found[0], found[1], atol=1e-10, rtol=1e-10)


def _in_torch_order(layer: Recurrent) -> list[Tensor]:
    cell = layer.cell
    bias = [] if cell.from_input.bias is None else [cell.from_input.bias]
    return [cell.from_input.weight, cell.from_past.weight, *bias]


@kinds
@biases
@depths
def test_torch_module_converts_to_layers(kind: type[nn.RNNBase], options: dict, bias: bool, num_layers: int) -> None:
    """Catches: only one of torch's biases was taken; the GRU's second bias was added to the first."""
    module = kind(3, 4, num_layers=num_layers, bias=bias, batch_first=True, dtype=torch.float64, **options)
    compare(module, from_torch(module))


@kinds
@biases
@depths
def test_layers_convert_to_a_torch_module(kind: type[nn.RNNBase], options: dict, bias: bool, num_layers: int) -> None:
    name = kind.__name__.lower()
    config = LAYERS[name].Config.make({"hidden_size": 4, "bias": bias, **options})
    layers = [LAYERS[name](config, 4 if index else 3).double() for index in range(num_layers)]
    compare(to_torch(layers), layers)


@kinds
@biases
def test_conversion_round_trips(kind: type[nn.RNNBase], options: dict, bias: bool) -> None:
    module = kind(3, 4, num_layers=2, bias=bias, batch_first=True, **options)
    layers = from_torch(module)
    again = from_torch(to_torch(layers))
    for one, two in zip(layers, again, strict=True):
        assert one.cell.config == two.cell.config
        torch.testing.assert_close(one.state_dict(), two.state_dict(), atol=0, rtol=0)


def test_unconvertible_layers_are_rejected() -> None:
    gru = LAYERS["gru"]
    with pytest.raises(ConfigError, match="reset before"):
        to_torch([gru(gru.Config(reset="before"), 3)])
    with pytest.raises(ConfigError, match="one type and width"):
        to_torch([gru(gru.Config(hidden_size=4), 3), LAYERS["rnn"](LAYERS["rnn"].Config(hidden_size=4), 4)])
    with pytest.raises(ConfigError, match="one type and width"):
        to_torch([gru(gru.Config(hidden_size=4), 3), gru(gru.Config(hidden_size=4), 3)])
    with pytest.raises(ConfigError, match=r"not \[\]"):
        to_torch([])
