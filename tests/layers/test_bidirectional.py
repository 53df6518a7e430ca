"""Bidirectional layers: equal to torch's, for every inner layer; invalid settings are rejected."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elman.errors import ConfigError, UnknownName
from elman.layers import LAYERS, TwoWayLayer, two_way
from elman.layers.bidirectional import Bidirectional, reverse
from elman.layers.torch_weights import from_torch
from elman.ops import taps
from elman.recurrence import using

PEERS = [(nn.RNN, "rnn"), (nn.GRU, "gru"), (nn.LSTM, "lstm")]


def build(input_size: int = 3, **settings: Any) -> Bidirectional:
    torch.manual_seed(0)
    return Bidirectional(Bidirectional.Config.make({"hidden_size": 4, **settings}), input_size)


def one_direction(module: nn.RNNBase, suffix: str) -> nn.RNNBase:
    """The weights of one direction as a module of their own."""
    single = type(module)(3, 4, bias=module.bias, batch_first=True, dtype=torch.float64)
    single.load_state_dict({name: getattr(module, name + suffix) for name in single.state_dict()})
    return single


@pytest.mark.parametrize(("kind", "name"), PEERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", ["reference", "vendor"])
def test_bidirectional_layer_equals_torch_on_packed_sequences(
    kind: type[nn.RNNBase], name: str, bias: bool, form: str
) -> None:
    """Outputs, ends and gradients in float64. Catches: the way back read the padding first; its outputs were not
    turned round; the directions exchanged in the output; its end was the forward's."""
    torch.manual_seed(0)
    theirs = kind(3, 4, bias=bias, batch_first=True, bidirectional=True, dtype=torch.float64)
    ours = build(layer={name: {"bias": bias}}).double()
    for layer, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
        layer.load_state_dict(from_torch(one_direction(theirs, suffix))[0].state_dict())
    x, lengths = torch.randn(5, 7, 3, dtype=torch.float64), torch.tensor([3, 7, 1, 5, 7])
    weight, real = torch.randn(5, 7, 8, dtype=torch.float64), torch.arange(7) < lengths.unsqueeze(1)

    one = x.clone().requires_grad_()
    packed, ends = theirs(pack_padded_sequence(one, lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    expected_ends = torch.stack(ends if name == "lstm" else [ends])  # (parts, directions, batch, width)

    two = x.clone().requires_grad_()
    with using(form):
        outputs, state = ours(two, None, lengths)
    pairs = [(a, b) if name == "lstm" else ([a], [b]) for a, b in [state]]
    found_ends = torch.stack([torch.stack(parts) for parts in zip(*pairs[0], strict=True)])

    outputs = outputs * real.unsqueeze(-1)
    torch.testing.assert_close(outputs, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found_ends, expected_ends, atol=1e-12, rtol=1e-12)
    ((expected * weight).sum() + (expected_ends**2).sum()).backward()
    ((outputs * weight).sum() + (found_ends**2).sum()).backward()
    torch.testing.assert_close(two.grad, one.grad, atol=1e-12, rtol=1e-12)
    for layer, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
        for part, theirs_part in (("from_input.weight", "weight_ih_l0"), ("from_past.weight", "weight_hh_l0")):
            gradient = layer.get_parameter(f"cell.{part}").grad
            torch.testing.assert_close(gradient, getattr(theirs, theirs_part + suffix).grad, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("inner", [name for name in LAYERS if LAYERS[name].causal])
def test_every_causal_layer_can_be_bidirectional(inner: str) -> None:
    """The backward direction equals the inner layer on reversed rows. Catches: directions with shared weights."""
    layer = build(8, layer=inner, hidden_size=8, join="sum").double().eval()
    x, lengths = torch.randn(3, 6, 8, dtype=torch.float64), [2, 6, 4]
    outputs, _ = layer(x, None, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        real = x[[row], :length]
        expected = layer.ahead(real)[0] + layer.back(real.flip(1))[0].flip(1)
        torch.testing.assert_close(outputs[[row], :length], expected)
    assert not {id(p) for p in layer.ahead.parameters()} & {id(p) for p in layer.back.parameters()}


def test_each_output_sees_both_sides() -> None:
    layer = build()
    x = torch.randn(1, 6, 3, requires_grad=True)
    for place in range(6):
        (gradient,) = torch.autograd.grad(layer(x)[0][:, place].sum(), x)
        assert (gradient.abs().sum(-1) > 0).all()


def test_sizes_and_settings_reach_the_inner_layers() -> None:
    assert build().output_size == 8
    assert build(join="sum").output_size == 4
    assert build(layer={"lstm": {"hidden_size": 6}}).output_size == 12
    assert build(hidden_size=0).output_size == 6
    dropped = build(weight_dropout=0.3, layer="peephole")
    assert dropped.ahead.cell.config.weight_dropout == dropped.back.cell.config.weight_dropout == 0.3
    assert build(layer={"type": "recurrent", "cell": "gru", "num_layers": 2}).output_size == 8


def test_invalid_inner_layer_is_rejected_when_settings_are_read() -> None:
    """Catches: the check was left to the building of the layer."""
    make = Bidirectional.Config.make
    with pytest.raises(ConfigError, match=r"'bidirectional' is already bidirectional.*lstm"):
        make({"layer": {"bidirectional": {}}})
    with pytest.raises(UnknownName, match="did you mean 'lstm'"):
        make({"layer": "lstn"})
    with pytest.raises(ConfigError, match=r"'rest' in section 'layer\.gru' \(did you mean 'reset'"):
        make({"layer": {"gru": {"rest": "before"}}})
    with pytest.raises(ConfigError, match="one name with its settings"):
        make({"layer": {"gru": {}, "lstm": {}}})
    with pytest.raises(ConfigError, match="'concat' or 'sum'"):
        make({"join": "mean"})


def test_bidirectional_inner_layer_is_rejected_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    window = LAYERS["window"]
    monkeypatch.setattr(window, "causal", property(lambda layer: layer.direct is None))
    assert build(layer="window").output_size == 8
    with pytest.raises(ConfigError, match="'window' is already bidirectional"):
        build(layer={"window": {"direct": True}})


def test_error_for_bidirectional_layers_names_causal_ones() -> None:
    assert issubclass(LAYERS["bidirectional"], TwoWayLayer)
    assert not LAYERS["bidirectional"].causal
    assert all(LAYERS[name].causal for name in ("lstm", "convolution", "window"))
    sentence = str(two_way("bidirectional"))
    assert "left-to-right model cannot use it" in sentence
    assert "bidirectional" not in sentence.partition("use one of ")[2].split(", ")
    assert "lstm" in sentence.partition("use one of ")[2].split(", ")


def test_settings_round_trip_through_yaml() -> None:
    config = Bidirectional.Config.make({"layer": {"gru": {"reset": "before"}}, "join": "sum"})
    assert Bidirectional.Config.make(config.plain()) == config


def test_recordings_are_named_by_direction_and_can_be_reversed() -> None:
    layer, lengths = build(), torch.tensor([4, 2])
    x = torch.randn(2, 4, 3)
    with taps.record("*") as recording:
        outputs, _ = layer(x, None, lengths)
    assert {"forward.lstm.gate.forget", "backward.lstm.gate.forget", "joined"} <= set(recording.sites())
    back = reverse(recording["backward.lstm.hidden"], lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(back[row, :length], outputs[row, :length, 4:])


def test_reverse_keeps_padding_in_place_and_is_an_involution() -> None:
    x = torch.arange(8).view(2, 4)
    lengths = torch.tensor([3, 0])
    assert reverse(x, lengths).tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
    assert torch.equal(reverse(reverse(x, lengths), lengths), x)
    assert reverse(x).tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]


def test_explain_names_the_running_implementation() -> None:
    assert build().explain(4, 16) == "both ways: vendor: oneDNN LSTM"
    assert build(layer="window").explain(4, 16) == "both ways: window"
    assert build(layer="attention", hidden_size=8, input_size=8).explain(4, 16).startswith("both ways: ")
    told = build().explain(4, 16, ragged=True)
    assert told.startswith("both ways: reference: ")
    assert "rows of unequal length" in told


def test_gradients_pass_gradcheck() -> None:
    layer = build(layer="gru", join="sum").double()
    lengths = torch.tensor([2, 3])

    def run(x: Tensor) -> tuple[Tensor, ...]:
        outputs, ends = layer(x, None, lengths)
        return (outputs[0, :2], outputs[1], *ends)

    assert torch.autograd.gradcheck(run, torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True))
