"""Position-wise layers: sizes, formulas, and a state without elements."""

import pytest
import torch
import torch.nn.functional as F

from elman.errors import ConfigError
from elman.layers import LAYERS


def build(name: str, width: int = 6, **settings):
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make(settings), width)


@pytest.mark.parametrize(
    ("name", "width", "settings", "inner"),
    [
        ("feedforward", 6, {}, 24),
        ("feedforward", 6, {"expansion": 1.5}, 9),
        ("feedforward", 6, {"inner_size": 5}, 5),
        ("swiglu", 6, {}, 16),
        ("swiglu", 256, {}, 688),
        ("swiglu", 768, {}, 2048),
        ("swiglu", 6, {"inner_size": 5}, 5),
    ],
)
def test_inner_sizes(name: str, width: int, settings, inner: int) -> None:
    layer = build(name, width, **settings)
    assert layer.to_output.in_features == inner
    assert layer.output_size == width


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh", "tanh", "swish"])
def test_feedforward_is_its_formula(activation: str) -> None:
    layer, x = build("feedforward", activation=activation), torch.randn(2, 3, 6)
    bend = {
        "relu": F.relu,
        "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
        "gelu-tanh": lambda x: x * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
        "tanh": torch.tanh,
        "swish": lambda x: x * torch.sigmoid(x),
    }[activation]
    torch.testing.assert_close(layer(x)[0], layer.to_output(bend(layer.from_input(x))))


def test_swiglu_is_its_formula() -> None:
    layer, x = build("swiglu"), torch.randn(2, 3, 6)
    gate, value = (x @ layer.from_input.weight.T).split(16, -1)
    torch.testing.assert_close(layer(x)[0], (gate * torch.sigmoid(gate) * value) @ layer.to_output.weight.T)
    torch.testing.assert_close(layer.inner(x), gate * torch.sigmoid(gate) * value)


def test_state_has_rows_but_no_elements() -> None:
    assert build("feedforward").initial_state(3).shape == (3, 0)
    with pytest.raises(ConfigError, match="activation"):
        build("feedforward", activation="sine")
