"""Convolution and window layers: against torch's convolution and by hand; the contents of their state."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.ops import taps


def build(name: str, input_size: int = 3, **settings: Any) -> Any:
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make({"hidden_size": 4, **settings}), input_size)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("linear", lambda x: x), ("relu", torch.relu), ("gelu", F.gelu), ("tanh", torch.tanh), (None, torch.relu)],
)
@given(kernel=st.integers(1, 4), dilation=st.integers(1, 3), bias=st.booleans())
def test_convolution_is_torchs_with_zeros_before_the_start(activation, function, kernel, dilation, bias) -> None:
    """Outputs and gradients. Catches: padding on the right; dilation not in the padding."""
    layer = build("convolution", kernel_size=kernel, dilation=dilation, bias=bias, activation=activation).double()
    peer = torch.nn.Conv1d(3, 4, kernel, dilation=dilation, bias=bias, dtype=torch.float64)
    peer.load_state_dict(layer.convolve.state_dict())
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    weight = torch.randn(2, 7, 4, dtype=torch.float64)
    padded = F.pad(x.transpose(1, 2), ((kernel - 1) * dilation, 0))
    expected, found = function(peer(padded)).transpose(1, 2), layer(x)[0]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(layer.convolve.weight.grad, peer.weight.grad, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("activation", "function"), [(None, lambda x: x), ("tanh", torch.tanh)])
def test_a_gated_convolution_is_glu_or_wavenets_unit(activation, function) -> None:
    """Catches: value and gate exchanged."""
    layer = build("convolution", gated=True, activation=activation)
    x = torch.randn(2, 7, 3)
    value, gate = layer.convolve(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2).chunk(2, -1)
    torch.testing.assert_close(layer(x)[0], function(value) * torch.sigmoid(gate))
    if activation is None:
        torch.testing.assert_close(layer(x)[0], F.glu(torch.cat([value, gate], -1)))


@pytest.mark.parametrize("direct", [False, True])
def test_window_by_hand(direct: bool) -> None:
    """Catches: newest first in one of the two maps; the window one too short."""
    layer = build("window", context=3, direct=direct)
    x = torch.randn(1, 5, 3)
    zeros = torch.zeros(3)
    for t, outputs in enumerate(layer(x)[0][0]):
        window = torch.cat([x[0, s] if s >= 0 else zeros for s in (t - 2, t - 1, t)])
        expected = torch.tanh(layer.hidden.weight @ window + layer.hidden.bias)
        if direct:
            expected = expected + layer.direct.weight @ window
        torch.testing.assert_close(outputs, expected)


def test_a_window_is_a_convolution_whose_kernel_is_the_context() -> None:
    window, convolution = build("window", context=4), build("convolution", kernel_size=4, activation="tanh")
    with torch.no_grad():
        convolution.convolve.weight.copy_(window.hidden.weight.view(4, 4, 3).transpose(1, 2))
        convolution.convolve.bias.copy_(window.hidden.bias)
    x = torch.randn(2, 9, 3)
    torch.testing.assert_close(window(x), convolution(x))


REACHES = [
    ("convolution", {"kernel_size": 3, "dilation": 2}, 4),
    ("convolution", {"kernel_size": 1}, 0),
    ("window", {"context": 4}, 3),
    ("window", {"context": 1}, 0),
]


@pytest.mark.parametrize(("name", "settings", "reach"), REACHES)
@given(time=st.integers(0, 9), length=st.integers(0, 9))
def test_state_holds_exactly_the_receptive_field(name, settings, reach, time, length) -> None:
    """Catches: one input too many; a row's padding in its state."""
    layer = build(name, **settings)
    x, past = torch.randn(2, time, 3), torch.randn(2, reach, 3)
    length = min(length, time)
    _, state = layer(x, past, torch.tensor([time, length]))
    assert state.shape == (2, reach, 3)
    for row, end in enumerate((time, length)):
        seen = torch.cat([past[row], x[row, :end]])
        assert torch.equal(state[row], seen[len(seen) - reach :])
    assert layer.initial_state(2).shape == (2, reach, 3)
    assert not layer.initial_state(2).any()


@pytest.mark.parametrize(("name", "settings", "reach"), REACHES)
def test_receptive_field_is_exact(name, settings, reach) -> None:
    layer = build(name, **{**settings, "bias": False})
    layer.activation = torch.tanh  # no unit is dead
    x = torch.randn(1, 9, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0][0, -1].sum(), x)
    seen = gradient[0].abs().sum(-1) > 0
    assert seen[-1]
    assert seen[8 - reach]
    assert not seen[: 8 - reach].any()


@pytest.mark.parametrize("name", ["convolution", "window"])
def test_state_does_not_keep_the_sequence_in_memory(name: str) -> None:
    """Catches: the state was a view."""
    _, state = build(name)(torch.randn(1, 1000, 3))
    assert state.untyped_storage().nbytes() == state.nbytes


@pytest.mark.parametrize("name", ["convolution", "window"])
def test_the_state_stays_in_float32(name: str) -> None:
    layer, x = build(name), torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, state = layer(x.bfloat16())
        assert (outputs.dtype, state.dtype) == (torch.bfloat16, torch.float32)
        assert layer.step(x[:, 0].bfloat16(), state)[1].dtype == torch.float32
    outputs, state = layer.bfloat16()(x.bfloat16())
    assert (outputs.dtype, state.dtype) == (torch.bfloat16, torch.float32)


def test_declared_taps_fire() -> None:
    for name, settings, expected in (
        ("convolution", {}, {"hidden"}),
        ("convolution", {"gated": True}, {"gate", "hidden"}),
        ("window", {}, {"hidden"}),
        ("window", {"direct": True}, {"hidden", "direct"}),
    ):
        layer = build(name, **settings)
        with taps.record("*") as recording:
            layer(torch.randn(1, 3, 3))
        assert set(recording.sites()) == expected <= set(layer.sites)


@pytest.mark.parametrize("run", ["whole", "steps"])
def test_an_edit_of_the_gate_reaches_the_output(run: str) -> None:
    layer, x = build("convolution", gated=True), torch.randn(1, 4, 3)
    with taps.edit({"gate@2": 0.0}):
        if run == "whole":
            outputs, _ = layer(x)
        else:
            state, pieces = layer.initial_state(1), []
            for t in range(4):
                piece, state = layer.step(x[:, t], state)
                pieces.append(piece)
            outputs = torch.stack(pieces, 1)
    assert outputs.abs().sum(-1).gt(0).tolist() == [[True, True, False, True]]


def test_invalid_settings_are_rejected() -> None:
    for name, wrong in (
        ("convolution", {"kernel_size": 0}),
        ("convolution", {"dilation": 0}),
        ("convolution", {"activation": "sine"}),
        ("window", {"context": 0}),
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            build(name, **wrong)
