"""Keras' recurrent layers, with torch as their backend, against ours: outputs, final states, rows of unequal length."""

import os
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from elman.layers import LAYERS

BATCH, TIME, INPUT, HIDDEN = 3, 7, 5, 4
LENGTHS = torch.tensor([7, 4, 1])
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # our name and settings, their settings
    "SimpleRNN": ("rnn", {}, {}),
    "SimpleRNN, relu": ("rnn", {"nonlinearity": "relu"}, {"activation": "relu"}),
    "GRU": ("gru", {}, {}),
    "GRU, reset before": ("gru", {"reset": "before"}, {"reset_after": False}),
    "LSTM": ("lstm", {}, {}),
    "LSTM, no bias": ("lstm", {"bias": False}, {"use_bias": False}),
}
ORDER = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 1, 2, 3]}  # of our gates among theirs


@pytest.fixture(scope="module")
def keras() -> Any:
    pytest.importorskip("h5py", reason="the package keras is not installed")
    os.environ["KERAS_BACKEND"] = "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("keras", reason="the package keras is not installed")


def random_weights(layer: Any) -> list[Tensor]:
    weights = [torch.randn(tuple(each.shape)) / 2 for each in layer.weights]
    layer.set_weights(weights)
    return weights


def ours(name: str, settings: dict[str, Any], weights: list[Tensor]) -> Any:
    """Our layer with their weights: of input and past, and the biases."""
    layer = LAYERS[name](LAYERS[name].Config.make({"hidden_size": HIDDEN, **settings}), INPUT)

    def blocks(weight: Tensor) -> Tensor:
        parts = weight.chunk(len(ORDER[name]), dim=-1)
        return torch.cat([parts[place] for place in ORDER[name]], dim=-1)

    given, past = blocks(weights[0]).T, blocks(weights[1]).T
    filled = {"from_input.weight": given, "from_past.weight": past}
    if settings.get("reset") == "before":
        filled |= {"from_past.weight": past[: 2 * HIDDEN], "from_reset_past.weight": past[2 * HIDDEN :]}
    if settings.get("bias", True):
        biases = [blocks(bias) for bias in weights[2].reshape(-1, weights[2].shape[-1])]
        filled["from_input.bias"] = sum(biases[1:], start=biases[0].clone())
        if len(biases) == 2:  # the reset gate multiplies that of the past
            filled["from_input.bias"][2 * HIDDEN :] = biases[0][2 * HIDDEN :]
            filled["past_bias"] = biases[1][2 * HIDDEN :]
    layer.cell.load_state_dict(filled)
    return layer


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_our_layers_give_what_those_of_keras_give(keras: Any, case: str) -> None:
    """Catches: gates exchanged, a bias left out, padding read."""
    name, settings, theirs = CASES[case]
    torch.manual_seed(0)
    x, state = torch.randn(BATCH, TIME, INPUT), [torch.randn(BATCH, HIDDEN) for _ in range(1 + (name == "lstm"))]
    peer = getattr(keras.layers, case.partition(",")[0])(HIDDEN, return_sequences=True, return_state=True, **theirs)
    peer.build((BATCH, TIME, INPUT))
    layer = ours(name, settings, random_weights(peer))
    start = type(layer.initial_state(1))(*state) if name == "lstm" else state[0]
    for lengths in (None, LENGTHS):
        real = torch.arange(TIME) < (torch.full((BATCH,), TIME) if lengths is None else lengths)[:, None]
        expected, *last = peer(x, initial_state=state, mask=None if lengths is None else real)
        found, end = layer(x, start, lengths)
        torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-6)
        for one, other in zip(end if name == "lstm" else [end], last, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_so_does_a_bidirectional_layer(keras: Any) -> None:
    torch.manual_seed(1)
    x, inner = torch.randn(BATCH, TIME, INPUT), keras.layers.LSTM(HIDDEN, return_sequences=True)
    peer = keras.layers.Bidirectional(inner)
    peer.build((BATCH, TIME, INPUT))
    weights = random_weights(peer)
    settings = {"layer": "lstm", "hidden_size": HIDDEN}
    layer = LAYERS["bidirectional"](LAYERS["bidirectional"].Config.make(settings), INPUT)
    layer.ahead, layer.back = ours("lstm", {}, weights[:3]), ours("lstm", {}, weights[3:])
    real = torch.arange(TIME) < LENGTHS[:, None]
    expected, (found, _) = peer(x, mask=real), layer(x, layer.initial_state(BATCH), LENGTHS)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-6)
