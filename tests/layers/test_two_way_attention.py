"""Bidirectional attention: against torch's module and the formula; masks and windows."""

import pytest
import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.layers.attention import Attention, TwoWayAttention
from elman.ops import taps
from elman.ops.state import tensors
from elman.recurrence import using

EVERY = [
    {},
    {"num_heads": 4, "kv_heads": 2, "positions": "rotary", "bias": True},
    {"num_heads": 2, "positions": "alibi", "window": 3},
    {"score": "additive", "query_key_norm": True},
    {"score": "bilinear"},
    {"projections": False},
]


def build(width: int = 8, seed: int = 0, **settings) -> TwoWayAttention:
    torch.manual_seed(seed)
    return TwoWayAttention(TwoWayAttention.Config.make(settings), width).eval()


def sequence(batch: int = 2, time: int = 7, width: int = 8) -> Tensor:
    return torch.randn(batch, time, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", ["vendor", "reference"])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_torch_module(form: str, bias: bool) -> None:
    """Outputs and weights, with padding. Catches: the future was hidden; padding was seen."""
    layer, x, lengths = build(num_heads=4, bias=bias), sequence(), torch.tensor([7, 4])
    theirs = nn.MultiheadAttention(8, 4, bias=bias, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(layer.from_input.weight)
        theirs.out_proj.weight.copy_(layer.to_output.weight)
        if bias:
            theirs.in_proj_bias.copy_(layer.from_input.bias)
            theirs.out_proj.bias.copy_(layer.to_output.bias)
    padding = torch.arange(7) >= lengths[:, None]
    expected, weights = theirs(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    with using(form):
        torch.testing.assert_close(layer(x, None, lengths)[0][~padding], expected[~padding])
    with taps.record("weights") as recording:
        layer(x, None, lengths)
    torch.testing.assert_close(recording["weights"].transpose(1, 2), weights)


def test_attention_without_projections_is_a_weighted_sum_of_inputs() -> None:
    layer, x = build(projections=False, score="dot"), sequence(1)
    assert list(layer.parameters()) == []
    torch.testing.assert_close(layer(x)[0][0], torch.softmax(x[0] @ x[0].T, -1) @ x[0])


@pytest.mark.parametrize("settings", EVERY[:5])
def test_last_position_equals_causal_attention(settings) -> None:
    """For the last position has nothing after it; weights have the same names in both. Catches: slopes upside down."""
    layer, x = build(**settings), sequence()
    causal = Attention(Attention.Config.make(settings), 8).eval()
    causal.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x)[0][:, -1], causal(x)[0][:, -1])


@pytest.mark.parametrize("settings", [{}, {"positions": "alibi", "num_heads": 2}, {"window": 3}])
def test_position_bias_is_symmetric(settings) -> None:
    """Reversing a text reverses the outputs. Catches: distances with their sign."""
    layer, x = build(**settings), sequence()
    torch.testing.assert_close(layer(x.flip(1))[0], layer(x)[0].flip(1))


def test_window_is_symmetric_and_exact() -> None:
    """Catches: a reach longer by one, or to one side only."""
    for form in ("vendor", "reference"):
        with using(form):
            layer, x = build(window=3), sequence()
            changed = x.clone()
            changed[:, 3] += 1
            same = torch.isclose(layer(x)[0], layer(changed)[0]).all(-1).all(0)
        assert same.tolist() == [True, False, False, False, False, False, True]


@pytest.mark.parametrize("settings", EVERY)
def test_padding_gets_no_attention(settings) -> None:
    """Catches: lengths off by one; with a window, padding was seen. A row of length 0 spoils no gradient."""
    layer, x, lengths = build(**settings), sequence(3).requires_grad_(), torch.tensor([7, 3, 0])
    real = torch.arange(7) < lengths[:, None]
    noise = torch.where(real.unsqueeze(-1), x, torch.full_like(x, 100.0))
    for form in ("vendor", "reference") if settings.get("score") != "additive" else ("reference",):
        with using(form):
            outputs = layer(x, None, lengths)[0][real]
            torch.testing.assert_close(layer(noise, None, lengths)[0][real], outputs)
            torch.testing.assert_close(layer(x[1:2, :3])[0][0], outputs[7:])
            (gradient,) = torch.autograd.grad(outputs.square().sum(), x)
        assert gradient.isfinite().all()
        assert not gradient[~real].any()


@pytest.mark.parametrize("settings", EVERY)
def test_the_fused_form_equals_the_reference(settings) -> None:
    layer, x, lengths = build(**settings).double(), sequence(3).double(), torch.tensor([7, 5, 1])
    found = []
    for form in ("auto", "reference"):
        with using(form):
            found.append(layer(x, None, lengths)[0][torch.arange(7) < lengths[:, None]])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("settings", EVERY)
def test_declared_taps_are_those_that_fire(settings) -> None:
    layer = build(**settings)
    with taps.record("*") as recording:
        layer(sequence())
    assert set(recording.sites()) == set(layer.sites)
    assert recording["scores"].shape == recording["weights"].shape == (2, 7, layer.heads, 7)
    torch.testing.assert_close(recording["weights"].sum(-1), torch.ones(2, 7, layer.heads))


def test_empty_batch_and_empty_sequence_have_correct_shapes() -> None:
    layer = build()
    for batch, time in ((0, 5), (2, 0), (0, 0)):
        outputs, state = layer(torch.zeros(batch, time, 8), None, torch.zeros(batch, dtype=torch.long))
        assert outputs.shape == (batch, time, 8)
        assert all(len(part) == batch for _, part in tensors(state))


def test_attention_dropout_is_active_in_training_only() -> None:
    layer, x = build(dropout=0.5), sequence()
    assert torch.equal(layer(x)[0], layer(x)[0])
    layer.train()
    assert not torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    ("width", "settings", "message"),
    [
        (
            10,
            {"num_heads": 4},
            r"width 10 does not split into 4 heads of even size; num_heads of 1, 2, 5, 10 is possible",
        ),
        (8, {"projections": False, "num_heads": 2}, "attention without projections has one head"),
        (8, {"context": 5}, "unknown key 'context'"),
    ],
)
def test_invalid_settings_are_rejected_with_a_remedy(width: int, settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(width, **settings)


def test_layer_is_registered_and_explains_its_implementation() -> None:
    assert LAYERS["two-way-attention"] is TwoWayAttention
    assert not TwoWayAttention.causal
    assert build().explain(4, 16) == "vendor: torch's fused attention"
