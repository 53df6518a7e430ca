"""Choosing the next token: each setting means exactly what it says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.config import commented_yaml
from elman.errors import ConfigError
from elman.generation.sampling import (
    NO_TOKEN,
    GenerationConfig,
    penalize,
    process_logits,
    random_stream,
    sample,
    sample_tokens,
)
from elman.ops.host_sync import without_host_sync

rows_of_logits = st.integers(2, 30).flatmap(
    lambda vocab: st.lists(
        st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.5, 4.0]), min_size=vocab, max_size=vocab),
        min_size=1,
        max_size=4,
    )
)  # few values, so that ties are common


def kept(shaped):
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in shaped]


def by_rank(row):
    """Token ids, most probable first, the lower id first among equals."""
    return sorted(range(len(row)), key=lambda token: (-row[token], token))


@given(rows_of_logits)
def test_temperature_zero_takes_the_largest(logits):
    tokens = sample_tokens(torch.tensor(logits), GenerationConfig(temperature=0), [])
    assert tokens.tolist() == [by_rank(row)[0] for row in logits]


@given(rows_of_logits, st.integers(1, 40))
def test_top_k_keeps_exactly_k_and_the_lower_ids_among_equals(logits, k):
    shaped = process_logits(torch.tensor(logits), GenerationConfig(top_k=k))
    assert kept(shaped) == [set(by_rank(row)[:k]) for row in logits]


@given(rows_of_logits, st.floats(0.01, 0.99), st.integers(0, 8))
def test_top_p_keeps_the_fewest_tokens_that_reach_p(logits, p, k):
    shaped = process_logits(torch.tensor(logits), GenerationConfig(top_p=p, top_k=k))
    for row, found in zip(logits, kept(shaped), strict=True):
        ranked = by_rank(row)[: k or None]
        weights = [math.exp(row[token]) for token in ranked]
        count, mass = 0, 0.0
        while mass < p - 1e-7:
            mass += weights[count] / sum(weights)
            count += 1
        assert found == set(ranked[:count])


@given(rows_of_logits, st.floats(0.01, 1), st.integers(0, 8), st.sampled_from([0.0, 0.7, 1.0]))
def test_where_nobody_may_look_the_distribution_is_the_same(logits, p, k, temperature):
    """Catches: one token fewer in the nucleus; the largest of too few."""
    logits, config = torch.tensor(logits), GenerationConfig(top_k=k, top_p=p, temperature=temperature)
    logits[:, 1] = -torch.inf
    expected = process_logits(logits, config)
    with without_host_sync():
        assert torch.equal(process_logits(logits, config), expected)


def test_top_p_sees_beyond_its_first_look_at_a_large_vocabulary():
    shaped = process_logits(torch.zeros(1, 5000), GenerationConfig(top_p=0.5))
    assert kept(shaped) == [set(range(2500))]
    sharp = torch.zeros(2, 5000)
    sharp[1, 4999] = 100.0
    assert [len(row) for row in kept(process_logits(sharp, GenerationConfig(top_p=0.5)))] == [2500, 1]


def test_a_mass_that_is_exactly_p_is_enough():
    assert kept(process_logits(torch.log(torch.tensor([[0.5, 0.4, 0.1]])), GenerationConfig(top_p=0.9))) == [{0, 1}]


def test_temperature_divides_the_logits():
    logits = torch.randn(3, 11, generator=torch.Generator().manual_seed(1))
    shaped = process_logits(logits, GenerationConfig(temperature=0.7))
    assert torch.allclose(shaped.softmax(-1), (logits.double() / 0.7).softmax(-1))


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_vanishing_temperature_is_greedy(temperature):
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(2)) * 30
    streams = [random_stream(0, row) for row in range(4)]
    for _ in range(20):
        assert torch.equal(sample_tokens(logits, GenerationConfig(temperature=temperature), streams), logits.argmax(-1))


@given(rows_of_logits, st.floats(0.5, 3.0), st.data())
def test_the_penalty_divides_positive_and_multiplies_negative_logits_of_recent_tokens(logits, penalty, data):
    vocab = len(logits[0])
    recent = data.draw(
        st.lists(
            st.lists(st.integers(NO_TOKEN, vocab - 1), min_size=5, max_size=5),
            min_size=len(logits),
            max_size=len(logits),
        )
    )
    found = penalize(torch.tensor(logits, dtype=torch.float64), torch.tensor(recent), penalty)
    for row, tokens, result in zip(logits, recent, found.tolist(), strict=True):
        expected = [
            value if token not in tokens else value / penalty if value > 0 else value * penalty
            for token, value in enumerate(row)
        ]
        assert result == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"temperature": 0.6}, {"top_k": 4}, {"top_p": 0.7}])
def test_frequencies_match_the_distribution(options):
    config = GenerationConfig(**options)
    logits = torch.tensor([1.0, 0.2, -0.5, 2.0, -3.0, 0.0, 1.0, -1.0])
    draws = 20_000
    expected = process_logits(logits.unsqueeze(0), config).softmax(-1)[0] * draws
    streams = [random_stream(7, row) for row in range(draws)]
    counts = sample_tokens(logits.expand(draws, -1), config, streams).bincount(minlength=len(logits)).double()
    possible = expected > 0
    assert not counts[~possible].any()
    chi_square = ((counts - expected) ** 2 / expected)[possible].sum()
    assert chi_square < 24.3  # the 0.1 % point for 7 degrees of freedom: the seed is fixed, so this never flickers


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5), st.sets(st.integers(0, 9), max_size=9))
def test_an_impossible_token_is_never_drawn(uniforms, impossible):
    logits = torch.zeros(len(uniforms), 10, dtype=torch.float64)
    logits[:, list(impossible)] = -torch.inf
    for precision in (torch.float64, torch.float32):
        tokens = sample(logits.to(precision), torch.tensor(uniforms, dtype=precision))
        assert not set(tokens.tolist()) & impossible
        assert int(tokens.max()) < 10


def test_a_draw_that_rounds_up_to_one_is_still_a_token():
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    assert sample(logits, torch.tensor([1.0])).tolist() == [1]


def test_each_row_has_its_own_random_stream():
    def numbers(seed, row):
        return random_stream(seed, row).random(4).tolist()

    assert numbers(3, 1) == numbers(3, 1)
    assert len({tuple(numbers(seed, row)) for seed in range(5) for row in range(5)}) == 25


@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(0, 5))
def test_a_row_chooses_the_same_in_any_company(rows, row):
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(5))
    config = GenerationConfig(top_p=0.9, top_k=20)
    alone = sample_tokens(logits[row : row + 1], config, [random_stream(1, row)])
    others = sorted({row, *range(rows)})
    together = sample_tokens(logits[others], config, [random_stream(1, other) for other in others])
    assert together[others.index(row)] == alone[0]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("temperature", -0.1, "greater than or equal to 0"),
        ("temperature", math.nan, "finite"),
        ("temperature", math.inf, "finite"),
        ("top_p", 0.0, "greater than 0"),
        ("top_p", 1.1, "less than or equal to 1"),
        ("top_p", math.nan, "finite"),
        ("top_k", -1, "greater than or equal to 0"),
        ("repetition_penalty", 0, "greater than 0"),
        ("repetition_penalty", math.nan, "finite"),
        ("repetition_window", 0, "greater than or equal to 1"),
        ("max_tokens", 0, "greater than or equal to 1"),
        ("stop", [""], "at least 1 character"),
        ("seed", -1, "greater than or equal to 0"),
    ],
)
def test_a_setting_out_of_range_says_what_would_work(name, value, remedy):
    with pytest.raises(ConfigError, match=f"{name}.*{remedy}"):
        GenerationConfig.make({name: value})


def test_every_setting_has_a_help_text():
    lines = commented_yaml(GenerationConfig()).splitlines()
    for name in GenerationConfig.model_fields:
        at = next(index for index, line in enumerate(lines) if line.startswith(f"{name}:"))
        assert lines[at - 1].startswith("# ")


def test_drawing_does_not_touch_the_logits():
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    config = GenerationConfig(top_k=3, top_p=0.5, repetition_penalty=2.0, temperature=0.5)
    sample_tokens(logits, config, [np.random.default_rng(0)] * 2, torch.tensor([[1], [2]]))
    assert torch.equal(logits, before)
