"""minGRU and minLSTM against their equations, and where a naive division gives NaN."""

from typing import Any

import pytest
import torch

from elman.layers import LAYERS
from elman.ops import taps

names = pytest.mark.parametrize("name", ["mingru", "minlstm"])


def build(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make({"hidden_size": 4, **settings}), 3)


def test_mingru_by_hand() -> None:
    """Catches: kept and new shares exchanged."""
    layer, x, h = build("mingru"), torch.randn(1, 5, 3), torch.randn(1, 4)
    outputs, final = layer(x, h)
    for t in range(5):
        z, candidate = (layer.from_input.weight @ x[0, t] + layer.from_input.bias).split(4)
        z = torch.sigmoid(-z)  # the paper's z is what ours leaves
        h = (1 - z) * h + z * candidate
        torch.testing.assert_close(outputs[:, t], h)
    torch.testing.assert_close(final, h)


def test_minlstm_by_hand() -> None:
    """Catches: gates not divided by their sum; forget and input exchanged."""
    layer, x, h = build("minlstm"), torch.randn(1, 5, 3), torch.randn(1, 4)
    outputs, final = layer(x, h)
    for t in range(5):
        f, i, candidate = (layer.from_input.weight @ x[0, t] + layer.from_input.bias).split(4)
        f, i = torch.sigmoid(f), torch.sigmoid(i)
        h = f / (f + i) * h + i / (f + i) * candidate
        torch.testing.assert_close(outputs[:, t], h)
    torch.testing.assert_close(final, h)


def test_minlstm_is_finite_where_both_gates_vanish() -> None:
    """Catches: sigmoid over the sum of sigmoids, which is 0/0 in float32 here."""
    layer = build("minlstm")
    with torch.no_grad():
        layer.from_input.bias[:8] = -200.0
    outputs, _ = layer(torch.randn(2, 5, 3))
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@names
def test_a_long_sequence_in_float32_equals_its_steps(name: str) -> None:
    layer, x = build(name), torch.randn(2, 300, 3)
    outputs, final = layer(x)
    state = layer.initial_state(2)
    for t in range(300):
        _, state = layer.step(x[:, t], state)
        torch.testing.assert_close(outputs[:, t], state, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(final, state, atol=1e-5, rtol=1e-4)


@names
def test_the_state_is_an_average_of_candidates(name: str) -> None:
    layer = build(name)
    with taps.record("candidate") as recording:
        outputs, _ = layer(10 * torch.randn(2, 50, 3))
    assert outputs.abs().max() <= recording["candidate"].abs().max()


@names
def test_declared_taps_fire(name: str) -> None:
    layer = build(name)
    with taps.record("*") as recording:
        outputs, _ = layer(torch.randn(2, 5, 3))
    assert set(recording.sites()) == set(layer.sites)
    torch.testing.assert_close(recording["hidden"], outputs)


@names
def test_the_state_stays_in_float32(name: str) -> None:
    layer, x = build(name), torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = layer(x)
        assert state.dtype == layer.step(x[:, 0], state)[1].dtype == torch.float32
    _, state = layer.bfloat16()(x.bfloat16())
    assert state.dtype == layer.step(x[:, 0].bfloat16(), state)[1].dtype == torch.float32


def test_the_forget_bias_is_added_to_the_forget_gate_only() -> None:
    difference = build("minlstm", forget_bias=2.0).from_input.bias - build("minlstm", forget_bias=0.0).from_input.bias
    torch.testing.assert_close(difference, torch.tensor([2.0] * 4 + [0.0] * 8))
    assert build("minlstm", bias=False).from_input.bias is None


@pytest.mark.parametrize("name", ["mingru", "minlstm"])
def test_explain_names_the_implementation(name: str) -> None:
    """Catches: an empty explanation."""
    layer = build(name)
    assert layer.explain(4, 16) == "chunked: chunks in parallel, in torch"
    with taps.record("hidden"):
        assert layer.explain(4, 16, ragged=True) == "reference: a recorder is listening"
        layer(torch.zeros(1, 1, layer.input_size))
