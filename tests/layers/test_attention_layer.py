"""Causal attention layer: against torch's module and the formula; positions, windows and cached state."""

import pytest
import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers import LAYERS, attention, heads
from elman.layers.attention import Attention
from elman.ops import attention as operation
from elman.ops import taps
from elman.ops.state import choose, take_rows, tensors
from elman.recurrence import using

FAMILY = {
    "attention": [{}, {"positions": "rotary", "bias": True}, {"score": "additive"}, {"projections": False}],
    "positions": [{}, {"kind": "sinusoidal"}],
    "feedforward": [{}],
    "swiglu": [{}],
    "experts": [{}],
}


def build(width: int = 8, seed: int = 0, **settings) -> Attention:
    torch.manual_seed(seed)
    return Attention(Attention.Config.make(settings), width).eval()


def sequence(batch: int = 2, time: int = 7, width: int = 8) -> Tensor:
    return torch.randn(batch, time, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", ["vendor", "reference"])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_torch_module(form: str, bias: bool) -> None:
    """Catches: heads split along the wrong axis."""
    layer = build(num_heads=4, bias=bias)
    theirs = nn.MultiheadAttention(8, 4, bias=bias, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(layer.from_input.weight)
        theirs.out_proj.weight.copy_(layer.to_output.weight)
        if bias:
            theirs.in_proj_bias.copy_(layer.from_input.bias)
            theirs.out_proj.bias.copy_(layer.to_output.bias)
    x = sequence()
    future = torch.ones(7, 7).triu(1).bool()
    expected, weights = theirs(x, x, x, attn_mask=future, average_attn_weights=False)
    with using(form):
        torch.testing.assert_close(layer(x)[0], expected)
    with taps.record("weights") as recording:
        layer(x)
    torch.testing.assert_close(recording["weights"].transpose(1, 2)[:, :, -1, -7:], weights[:, :, -1])


def test_attention_without_projections_is_a_weighted_sum_of_inputs() -> None:
    layer = build(projections=False, score="dot")
    assert list(layer.parameters()) == []
    x = sequence(1)
    expected = torch.stack([torch.softmax(x[0, : i + 1] @ x[0, i], 0) @ x[0, : i + 1] for i in range(7)])
    torch.testing.assert_close(layer(x)[0][0], expected)


def test_grouped_query_attention_equals_repeated_keys_and_values() -> None:
    """Catches: groups interleaved instead of neighbours."""
    grouped, full = build(num_heads=4, kv_heads=2), build(num_heads=4, seed=1)
    query, key, value = grouped.from_input.weight.split([8, 4, 4])
    twice = [part.unflatten(0, (2, 2)).repeat_interleave(2, 0).flatten(0, 1) for part in (key, value)]
    with torch.no_grad():
        full.from_input.weight.copy_(torch.cat([query, *twice]))
        full.to_output.weight.copy_(grouped.to_output.weight)
    for form in ("vendor", "reference"):
        with using(form):
            torch.testing.assert_close(grouped(sequence())[0], full(sequence())[0])


@pytest.mark.parametrize("settings", [{"context": 3}, {"window": 3}, {"context": 3, "score": "additive"}])
def test_attention_window_has_exactly_the_context_length(settings) -> None:
    """Catches: a reach longer by one, or shorter."""
    layer, x = build(**settings), sequence()
    changed = x.clone()
    changed[:, 2] += 1
    same = torch.isclose(layer(x)[0], layer(changed)[0]).all(-1).all(0)
    assert same.tolist() == [True, True, False, False, False, True, True]
    assert layer.initial_state(1).keys.shape[2] == 2


@pytest.mark.parametrize(("positions", "sees_order"), [("none", False), ("rotary", True), ("alibi", True)])
def test_attention_without_positions_ignores_order(positions: str, sees_order: bool) -> None:
    layer, x = build(num_heads=2, positions=positions), sequence()
    shuffled = x[:, [3, 0, 5, 1, 4, 2, 6]]
    last, other = layer(x)[0][:, -1], layer(shuffled)[0][:, -1]
    assert torch.allclose(last, other, atol=1e-6) != sees_order


def test_positions_continue_from_the_state() -> None:
    """Only distances matter: after a million positions the state behaves as after a few."""
    for positions in ("rotary", "alibi"):
        layer = build(num_heads=2, positions=positions, context=4)
        x = sequence()
        near = layer(x)[0]
        far = layer(x, layer.initial_state(2)._replace(seen=torch.tensor([10**6, 7])))[0]
        torch.testing.assert_close(far[:, 3:], near[:, 3:])


def test_rows_of_a_state_may_have_different_lengths() -> None:
    layer = build(num_heads=2, positions="rotary", context=5)
    long, short = layer(sequence()[:1])[1], layer(sequence()[1:, :2])[1]
    both = type(long)(*(torch.cat(parts) for parts in zip(long, short, strict=True)))
    outputs, _ = layer.step(sequence()[:, 0], both)
    torch.testing.assert_close(outputs[:1], layer.step(sequence()[:1, 0], long)[0])
    torch.testing.assert_close(outputs[1:], layer.step(sequence()[1:, 0], short)[0])
    chosen = choose(torch.tensor([True, False]), layer.initial_state(2), both)
    assert chosen.seen.tolist() == [0, 2]
    torch.testing.assert_close(layer.step(sequence()[1:, 0], take_rows(chosen, [1]))[0], outputs[1:])


def test_state_has_constant_memory() -> None:
    """Catches: a state that was a view of all past keys."""
    layer = build(context=6)
    state = layer.initial_state(2)
    assert state.keys.untyped_storage().nbytes() == 4, "zeros that take no memory"
    sizes = set()
    with torch.no_grad():
        for _ in range(20):
            _, state = layer.step(torch.randn(2, 8), state)
            sizes.add(sum(part.untyped_storage().nbytes() for _, part in tensors(state)))
    assert len(sizes) == 1
    _, after = layer(torch.randn(2, 50, 8), state)
    assert after.keys.untyped_storage().nbytes() <= state.keys.untyped_storage().nbytes()


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary"}, {"query_key_norm": True}, {"score": "additive"}])
def test_under_autocast_the_state_stays_in_float32(settings) -> None:
    layer, x = build(num_heads=2, context=4, **settings), sequence()
    expected, _ = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        first, state = layer(x[:, :4])
        second, state = layer(x[:, 4:6], state, torch.tensor([2, 2]))
        last, state = layer.step(x[:, 6], state)
    assert state.keys.dtype == state.values.dtype == torch.float32
    torch.testing.assert_close(torch.cat([first, second, last[:, None]], 1).float(), expected, atol=3e-2, rtol=3e-2)


def test_layer_runs_in_half_precision() -> None:
    layer = build(num_heads=2, positions="alibi").bfloat16()
    outputs, state = layer(sequence().bfloat16())
    outputs, state = layer(sequence().bfloat16(), state)
    assert outputs.dtype == torch.bfloat16
    assert state.keys.dtype == torch.float32


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "kv_heads": 1}, {"positions": "alibi", "window": 3}])
def test_cpu_shortcuts_do_not_change_results(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: unused cache positions not masked if values cannot be read."""
    layer, x, lengths = build(num_heads=2, context=5, **settings), sequence(), torch.tensor([3, 0])

    def walked() -> list[Tensor]:
        first, state = layer(x[:, :3], None, lengths)
        second, state = layer(x[:, 3:5], state)
        third, state = layer.step(x[:, 5], state)
        return [first[:1], second, third, *state]

    expected = walked()
    for module in (attention, heads, operation):
        monkeypatch.setattr(module, "may_read_values", lambda x: False)
    torch.testing.assert_close(walked(), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "kv_heads": 2}, {"positions": "alibi", "window": 40}])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_fused_attention_on_gpu_equals_the_reference(settings, kind: torch.dtype) -> None:
    layer = build(64, num_heads=4, context=100, **settings).cuda()
    x, lengths = sequence(3, 130, 64).cuda(), torch.tensor([130, 0, 77], device="cuda")
    found = []
    for form in ("vendor", "reference"):
        layer.zero_grad()
        with using(form), torch.autocast("cuda", kind, enabled=kind != torch.float32):
            first, state = layer(x, None, lengths)
            second, state = layer(x[:, :50], state)
        (first[0].float().square().sum() + second.float().square().sum()).backward()
        assert state.keys.dtype == torch.float32
        found.append([first[0].float(), second.float(), state.keys, layer.from_input.weight.grad.clone()])
    close = 1e-4 if kind == torch.float32 else 5e-2
    torch.testing.assert_close(*found, atol=close, rtol=close)


@pytest.mark.parametrize("name", list(FAMILY))
def test_empty_batch_and_empty_sequence_have_correct_shapes(name: str) -> None:
    for settings in FAMILY[name]:
        layer = LAYERS[name](LAYERS[name].Config.make(settings), 8)
        for batch, time in ((0, 5), (2, 0), (0, 0)):
            outputs, state = layer(torch.zeros(batch, time, 8), None, torch.zeros(batch, dtype=torch.long))
            assert outputs.shape == (batch, time, 8)
            assert all(len(part) == batch for _, part in tensors(state))
            assert layer.step(torch.zeros(batch, 8), state)[0].shape == (batch, 8)


@pytest.mark.parametrize("name", list(FAMILY))
def test_declared_taps_are_the_taps_that_fire(name: str) -> None:
    """Catches: a site without a tap; a tap without a site."""
    for settings in FAMILY[name]:
        layer = LAYERS[name](LAYERS[name].Config.make(settings), 8)
        with taps.record("*") as recording:
            layer(sequence())
        assert set(recording.sites()) == set(layer.sites)
        assert all(layer.sites.values())


def test_recorded_scores_are_query_key_products() -> None:
    layer = build(num_heads=2, positions="rotary", query_key_norm=True, context=3)
    with taps.record("*") as seen:
        layer(sequence())
    last = torch.einsum("bhd,bkhd->bhk", seen["query"][:, -1], seen["key"][:, -3:]) / 2
    torch.testing.assert_close(seen["scores"][:, -1], last)
    assert (seen["scores"][:, 0, :, :2] == -torch.inf).all()


def test_alibi_lowers_scores_with_distance() -> None:
    """Catches: slopes of the wrong sign."""
    layer = build(num_heads=2, positions="alibi", context=3)
    with taps.record("*") as seen:
        layer(sequence())
    plain = torch.einsum("bhd,bkhd->bhk", seen["query"][:, -1], seen["key"][:, -3:]) / 2
    torch.testing.assert_close(
        seen["scores"][:, -1] - plain, torch.tensor([[[-2, -1, 0]]]) * layer.slopes.view(1, 2, 1) + 0 * plain
    )


def test_attention_dropout_is_active_in_training_only() -> None:
    layer = build(dropout=0.5)
    x = sequence()
    assert torch.equal(layer(x)[0], layer(x)[0])
    layer.train()
    for form in ("vendor", "reference"):
        with using(form):
            assert not torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize(
    ("width", "settings", "expected"),
    [
        (256, {}, (4, 4, 64)),
        (768, {"positions": "rotary"}, (12, 12, 64)),
        (200, {}, (2, 2, 100)),
        (10, {}, (1, 1, 10)),
        (256, {"kv_heads": 2}, (4, 2, 64)),
        (5, {"num_heads": 3, "head_size": 4}, (3, 3, 4)),
        (512, {"head_size": 32}, (16, 16, 32)),
    ],
)
def test_default_number_of_heads_divides_every_width(width: int, settings, expected) -> None:
    layer = build(width, **settings)
    assert (layer.heads, layer.kv_heads, layer.head_size) == expected
    assert layer.output_size == width


@pytest.mark.parametrize(
    ("width", "settings", "message"),
    [
        (
            10,
            {"num_heads": 4},
            r"width 10 does not split into 4 heads of even size; num_heads of 1, 2, 5, 10 is possible",
        ),
        (6, {"num_heads": 2, "positions": "rotary"}, r"width 6 in 2 heads gives 3 units each; num_heads of 1, 3 is"),
        (7, {"positions": "rotary"}, r"width 7 in 1 heads gives 7 units each; set head_size"),
        (8, {"head_size": 3, "positions": "rotary"}, "head_size 3 must be even"),
        (8, {"num_heads": 4, "kv_heads": 3}, r"4 query heads cannot share 3 .*kv_heads of 1, 2, 4 is possible"),
        (8, {"window": 9, "context": 8}, "window 9 must not exceed context 8"),
        (8, {"projections": False, "num_heads": 2}, "attention without projections has one head"),
        (8, {"score": "cosine"}, "dot"),
        (8, {"context": 0}, "context"),
    ],
)
def test_invalid_settings_are_rejected_with_a_remedy(width: int, settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(width, **settings)


def test_explain_names_the_implementation() -> None:
    assert build().explain(4, 16) == "vendor: torch's fused attention"
    assert build(score="additive").explain(4, 16) == "reference: additive scores have no fused kernel"
