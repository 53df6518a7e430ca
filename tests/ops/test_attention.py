"""Attention: both forms give the same, masks mean what they say, and the recorded layout can be undone."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import attention, taps
from elman.ops.attention import Score, attend, attend_to_past, by_position, choose, from_band, to_band
from elman.recurrence import using


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def in_both_forms(run: Any, *given: Tensor) -> list[list[Tensor]]:
    """Outputs and gradients of the inputs, in the fused form and in the reference."""
    found = []
    for form in ("vendor", "reference"):
        leaves = [part.clone().requires_grad_() for part in given]
        with using(form):
            outputs = run(*leaves)
        (outputs * numbers(*outputs.shape, seed=5)).sum().backward()
        found.append([outputs.detach(), *(leaf.grad for leaf in leaves)])
    return found


@given(
    sizes=st.tuples(st.integers(2, 9), st.integers(0, 6), st.integers(1, 6), st.integers(1, 3)),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    kind=st.sampled_from(["dot", "scaled", "bilinear"]),
    sloped=st.booleans(),
    seen=st.lists(st.integers(0, 8), min_size=2, max_size=2),
)
def test_the_fused_form_equals_the_reference(sizes, heads, kind, sloped, seen) -> None:
    """Catches: a window longer by one in blocks; empty places seen; no scale."""
    time, past, beyond, block = sizes
    reach = past + beyond
    score = Score(kind, heads[0], 4).double()
    slopes = torch.rand(heads[0], dtype=torch.float64) if sloped else None

    def run(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        with patch.object(attention, "BLOCK", block):
            return attend_to_past(query, keys, values, score, seen=torch.tensor(seen), reach=reach, slopes=slopes)

    keys, values = numbers(2, heads[1], past + time, 4, seed=1), numbers(2, heads[1], past + time, 4, seed=2)
    found = in_both_forms(run, numbers(2, heads[0], time, 4), keys, values)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@given(masked=st.lists(st.booleans(), min_size=6, max_size=6), kind=st.sampled_from(["scaled", "additive"]))
def test_fully_masked_queries_return_zeros_and_finite_gradients(masked, kind) -> None:
    """For a decoder that reads an empty source. Catches: the reference without its second mask."""
    mask = torch.tensor(masked).view(1, 1, 2, 3)
    score = Score(kind, 2, 4).double()
    forms = ["reference"] if kind == "additive" else ["vendor", "reference"]
    for form in forms:
        parts = [numbers(2, 2, length, 4).requires_grad_() for length in (2, 3, 3)]
        with using(form):
            outputs = attend(*parts, mask, score)
        outputs.sum().backward()
        assert all(torch.isfinite(part.grad).all() for part in parts)
        nowhere = ~mask.any(-1).view(2)
        assert (outputs[:, :, nowhere] == 0).all()
        assert (outputs[:, :, ~nowhere] != 0).all()


def test_every_score_is_its_formula() -> None:
    """Catches: query and key of the bilinear form exchanged; additive without tanh."""
    query, keys = numbers(2, 3, 2, 4), numbers(2, 3, 5, 4)
    for kind in ("dot", "scaled", "bilinear", "additive"):
        score = Score(kind, 3, 4).double()
        found = score(query, keys)
        for b, h, i, j in [(0, 0, 0, 0), (1, 2, 1, 4), (0, 1, 1, 3)]:
            q, k = query[b, h, i], keys[b, h, j]
            expected = {
                "dot": lambda q, k, s, h: q @ k,
                "scaled": lambda q, k, s, h: q @ k / 2,
                "bilinear": lambda q, k, s, h: q @ s.between[h] @ k,
                "additive": lambda q, k, s, h: (
                    torch.tanh(q @ s.from_query[h] + k @ s.from_key[h]) @ s.vector[h].squeeze()
                ),
            }[kind](q, k, score, h)
            torch.testing.assert_close(found[b, h, i, j], expected, rtol=1e-12, atol=1e-12)


def test_attention_is_its_formula() -> None:
    x = numbers(1, 1, 4, 3)
    outputs = attend_to_past(x, x, x, Score("dot"), seen=torch.zeros(1, dtype=torch.long), reach=4)
    rows = x[0, 0]
    for i in range(4):
        shares = torch.stack([(rows[i] @ rows[j]).exp() for j in range(i + 1)])
        torch.testing.assert_close(outputs[0, 0, i], shares / shares.sum() @ rows[: i + 1])


@given(time=st.integers(1, 7), reach=st.integers(1, 9), past=st.integers(0, 8))
def test_the_banded_layout_is_invertible(time, reach, past) -> None:
    """Catches: the padding of rows shorter by one."""
    past = min(past, reach - 1)
    square = numbers(2, 3, time, past + time)
    distance = torch.arange(past, past + time).unsqueeze(1) - torch.arange(past + time)
    square = square.masked_fill((distance < 0) | (distance >= reach), -7.0)
    band = to_band(square, reach, -7.0)
    assert band.shape == (2, 3, time, reach)
    for i in range(time):
        for back in range(reach):
            place = past + i - back
            assert (band[..., i, reach - 1 - back] == (square[..., i, place] if place >= 0 else -7.0)).all()
    assert torch.equal(from_band(band, past + time, -7.0), square)


@pytest.mark.parametrize("reach", [2, 6, 9])
def test_recorded_weights_are_lower_triangular_and_sum_to_one(reach) -> None:
    x = numbers(1, 2, 6, 3)
    with taps.record("weights") as recording:
        outputs = attend_to_past(x, x, x, Score("scaled"), seen=torch.zeros(1, dtype=torch.long), reach=reach)
    square = by_position(recording["weights"])
    assert square.shape == (1, 2, 6, 6)
    torch.testing.assert_close(square.sum(-1), torch.ones(1, 2, 6))
    assert torch.equal(square, square.tril())
    assert torch.equal(square, square.triu(1 - reach))
    torch.testing.assert_close(square.double() @ x, outputs, atol=1e-6, rtol=1e-6)


def test_across_sequences_weights_are_recorded_for_every_key() -> None:
    with taps.record("weights", "scores") as recording:
        attend(numbers(2, 2, 3, 4), numbers(2, 1, 5, 4), numbers(2, 1, 5, 4))
    assert recording["weights"].shape == recording["scores"].shape == (2, 3, 2, 5)


def test_edited_attention_weights_take_effect() -> None:
    values = numbers(1, 1, 4, 3)
    with taps.edit({"weights": lambda weights: torch.zeros_like(weights).index_fill(-1, torch.tensor([2]), 1.0)}):
        outputs = attend_to_past(values, values, values, Score("dot"), seen=torch.zeros(1, dtype=torch.long), reach=3)
    torch.testing.assert_close(outputs, values)  # each position reads itself


def test_a_short_reach_does_not_compute_all_pairs_of_a_long_sequence() -> None:
    """4096² weights of one head would take 64 MiB in float32 alone."""
    x = torch.randn(1, 1, 4096, 2)
    seen = torch.zeros(1, dtype=torch.long)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=activities, acc_events=True) as profile:
        attend_to_past(x, x, x, Score("scaled"), seen=seen, reach=16)
    assert max(event.self_cpu_memory_usage for event in profile.key_averages()) < 8 * 2**20


def test_the_choice_names_the_form_and_its_reason() -> None:
    query = torch.zeros(2, 2, 5, 4)
    assert str(choose(query, Score("scaled"))) == "vendor: torch's fused attention"
    assert str(choose(query, Score("additive", 2, 4))) == "reference: additive scores have no fused kernel"
    assert str(choose(query[:0], Score("dot"))) == "reference: the batch is empty"
    assert str(choose(query[:, :, :1], Score("dot"))).startswith("reference: for one position")
    with taps.record("*"):
        assert str(choose(query, Score("dot"))) == "reference: a recorder is listening"
        attend(query, query, query)
    with using("vendor"), pytest.raises(ConfigError, match="vendor form of attention cannot run: additive"):
        choose(query, Score("additive", 2, 4))
