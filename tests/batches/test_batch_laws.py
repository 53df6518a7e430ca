"""Laws of every batch source. All generated words differ, so a token identifies its position."""

import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.batches import Batch, Documents, ParallelStreams, Stream, TokenStore
from elman.corpus.document import Document
from elman.errors import ConfigError, DataError
from elman.tokenizers import train_tokenizer

patient = settings(deadline=None)
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=30)
small, seeds, epochs = st.integers(1, 7), st.integers(0, 2**40), st.integers(0, 5)


def make_store(sizes):
    ends = np.cumsum(sizes)
    texts = [" ".join(f"w{word}" for word in range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    tokenizer = train_tokenizer("word", [*texts, "x"])
    with tempfile.TemporaryDirectory() as folder:
        return TokenStore.build(map(Document, texts), tokenizer, Path(folder), "train")


def histories(batches):
    """The real inputs and targets of each row, rows matched between batches as states are."""
    done, rows, alive = [], [], 0
    for batch in batches:
        if batch.fresh:
            done, rows, alive = done + rows, [([], []) for _ in batch.inputs], len(batch.inputs)
        assert len(batch.inputs) <= alive
        alive = len(batch.inputs)
        for row, inputs, targets, mask in zip(rows, batch.inputs, batch.targets, batch.mask(), strict=False):
            row[0].extend(inputs[mask].tolist())
            row[1].extend(targets[mask].tolist())
    return done + rows


def check_form(batch):
    assert batch.inputs.shape == batch.targets.shape
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.inputs.is_contiguous()
    assert batch.targets.is_contiguous()
    assert batch.inputs.numel() > 0
    if batch.lengths is not None:
        lengths = batch.lengths.tolist()
        assert lengths == sorted(lengths, reverse=True)
        assert 0 < lengths[-1] < lengths[0] == batch.inputs.shape[1]


def same(ours, others):
    ours, others = list(ours), list(others)
    return len(ours) == len(others) and all(map(equal, ours, others))


def equal(one, other):
    for mine, its in zip(one, other, strict=True):
        if isinstance(mine, torch.Tensor) and isinstance(its, torch.Tensor):
            if not torch.equal(mine, its):
                return False
        elif mine is not its:
            return False
    return True


@patient
@given(sizes=sizes, batch_size=small, length=small, seed=seeds, epoch=epochs, jitter=st.booleans(), shift=st.booleans())
def test_parallel_streams_hold_the_tokens_in_order(*, sizes, batch_size, length, seed, epoch, jitter, shift):
    store = make_store(sizes)
    batch_size = min(batch_size, len(store.tokens))
    stream = Stream(store, batch_size, length, seed, jitter=jitter, shift=shift)
    batches = list(stream.epoch(epoch))
    for batch in batches:
        check_form(batch)
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)
    rows = histories(batches)
    ring = store.tokens.tolist()
    size = len(ring) // batch_size
    assert [len(targets) for _, targets in rows] == [size] * batch_size
    assert stream.left_out == len(ring) - size * batch_size
    inputs, targets = [list(chain.from_iterable(part)) for part in zip(*rows, strict=True)]
    places = [k for k in range(len(ring)) if targets == (ring[k:] + ring[:k])[: len(targets)]]
    assert places if shift else 0 in places
    assert any(inputs == (ring[k - 1 :] + ring[: k - 1])[: len(inputs)] for k in places)
    widths = [batch.inputs.shape[1] for batch in batches]
    if length > 1 and len(batches) > 1:
        assert min(widths) >= 2
    if not jitter:
        assert set(widths[:-1]) <= {length}
        assert widths[-1] <= length + (length > 1)


@patient
@given(sizes=sizes, lanes=st.integers(1, 40), length=small)
def test_evaluation_streams_score_every_token_once_in_order(sizes, lanes, length):
    store = make_store(sizes)
    batches = ParallelStreams(store, lanes, length)
    for batch in batches.epoch(0):
        check_form(batch)
    rows = histories(batches.epoch(0))
    assert len(rows) == min(lanes, len(store.tokens))
    inputs, targets = [list(chain.from_iterable(part)) for part in zip(*rows, strict=True)]
    assert targets == store.tokens.tolist()
    assert inputs == [0, *targets[:-1]]
    assert batches.left_out == 0


@patient
@given(
    sizes=sizes, batch_size=small, length=small, seed=seeds, epoch=epochs, shuffle=st.booleans(), pool=st.integers(1, 3)
)
def test_chunks_concatenate_to_the_documents(*, sizes, batch_size, length, seed, epoch, shuffle, pool):
    store = make_store(sizes)
    batches = Documents(store, batch_size, length, seed, shuffle=shuffle, pool=pool)
    rows = histories(batches.epoch(epoch))
    for inputs, targets in rows:
        assert inputs == [0, *targets[:-1]]
    assert sorted(targets for _, targets in rows) == sorted(store.document(i).tolist() for i in range(len(sizes)))
    assert sum(batch.fresh for batch in batches.epoch(epoch)) == -(-len(sizes) // batch_size)
    for batch in batches.epoch(epoch):
        check_form(batch)
        assert len(batch.inputs) <= batch_size
        assert batch.inputs.shape[1] <= length


def all_kinds(store, batch_size, length, seed):
    batch_size = min(batch_size, len(store.tokens))
    yield Stream(store, batch_size, length, seed)
    yield Stream(store, batch_size, length, seed, jitter=True, shift=False)
    yield ParallelStreams(store, batch_size, length)
    yield Documents(store, batch_size, length, seed, pool=2)
    yield Documents(store, batch_size, length, seed, shuffle=False)


@patient
@given(sizes=sizes, batch_size=small, length=small, seed=seeds, epoch=epochs, data=st.data())
def test_epochs_can_be_resumed_at_any_batch(*, sizes, batch_size, length, seed, epoch, data):
    store = make_store(sizes)
    kinds = zip(all_kinds(store, batch_size, length, seed), all_kinds(store, batch_size, length, seed), strict=True)
    for batches, again in kinds:
        whole = list(batches.epoch(epoch))
        assert len(whole) == batches.length_of(epoch) > 0
        start = data.draw(st.integers(0, len(whole) + 1))
        list(again.epoch(epoch + 1))  # what was asked before changes nothing
        assert same(again.epoch(epoch, start), whole[start:])
        assert same(batches.epoch(epoch), whole)


@patient
@given(sizes, small, small, seeds, st.integers(1, 5))
def test_ranks_partition_rows_and_carry_their_own_states(sizes, batch_size, length, seed, world):
    store = make_store(sizes)
    for batches in all_kinds(store, batch_size, length, seed):
        shares = [[batch.rows(slice(rank, None, world)) for batch in batches.epoch(1)] for rank in range(world)]
        whole = list(batches.epoch(1))
        for index, batch in enumerate(whole):
            ours = [share[index] for share in shares]
            assert sum(len(part.inputs) for part in ours) == len(batch.inputs)
            assert sum(part.real for part in ours) == batch.real == int(batch.mask().sum())
            for rank, part in enumerate(ours):
                assert torch.equal(part.targets, batch.targets[rank::world])
        together = [history for share in shares for history in histories(share)]
        assert sorted(together) == sorted(histories(whole))


def test_epochs_differ_and_seeds_decide():
    store = make_store([5] * 40)
    for kind in (Stream, Documents):
        batches = kind(store, 4, 6, 7)
        assert not same(batches.epoch(0), batches.epoch(1))
        assert not same(batches.epoch(0), kind(store, 4, 6, 8).epoch(0))
        np.random.seed(1)
        torch.manual_seed(1)
        first = list(batches.epoch(0))
        np.random.seed(2)
        torch.manual_seed(2)
        before = np.random.get_state()[2], torch.random.get_rng_state()
        assert same(first, kind(store, 4, 6, 7).epoch(0))
        assert np.random.get_state()[2] == before[0]
        assert torch.equal(torch.random.get_rng_state(), before[1])


def test_a_shifted_stream_sees_every_token_over_time():
    store = make_store([6] * 5)
    stream = Stream(store, 8, 3, 0)
    assert stream.left_out == 35 % 8 == 3
    seen = {token for epoch in range(9) for batch in stream.epoch(epoch) for token in batch.targets.flatten().tolist()}
    assert seen == set(store.tokens.tolist())


def test_jitter_varies_the_length_around_the_one_asked_for():
    store = make_store([9] * 2000)
    widths = [batch.inputs.shape[1] for batch in Stream(store, 2, 40, 3, jitter=True).epoch(0)][:-1]
    assert 35 < np.mean(widths) < 41
    assert min(widths) >= 5
    assert len(set(widths)) > 10
    assert any(10 < width < 28 for width in widths)  # about one in twenty takes half


def test_documents_of_similar_length_share_a_batch():
    sizes = np.random.default_rng(0).integers(1, 100, 1000).tolist()
    real = padded = 0
    for batch in Documents(make_store(sizes), 20, 1000, 0).epoch(0):
        real, padded = real + batch.real, padded + batch.targets.numel()
    assert real / padded > 0.95


def test_masks_and_counts_follow_the_lengths():
    inputs = torch.zeros(2, 3, dtype=torch.int64)
    batch = Batch(inputs, inputs, torch.tensor([3, 1]), True)
    assert batch.mask().tolist() == [[True, True, True], [True, False, False]]
    assert batch.real == 4
    assert Batch(inputs, inputs, None, True).real == 6
    assert Batch(inputs, inputs, None, True).mask().all()
    moved = batch.to("meta")
    assert {part.device.type for part in moved[:3]} == {"meta"}
    assert moved.fresh
    assert batch.rows(slice(1, None)).lengths.tolist() == [1]


def test_invalid_batch_settings_and_short_texts_are_rejected():
    store = make_store([1, 1])
    with pytest.raises(DataError, match="4 tokens are too few for 5 parallel streams"):
        Stream(store, 5, 3, 0)
    with pytest.raises(ConfigError, match="length must be at least 1, but got 0"):
        Documents(store, 5, 0, 0)
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        ParallelStreams(store, 0, 3)
    with tempfile.TemporaryDirectory() as folder:
        empty = TokenStore.build([], train_tokenizer("byte", []), Path(folder), "none")
    for kind in (
        lambda: Documents(empty, 2, 3, 0),
        lambda: ParallelStreams(empty, 2, 3),
        lambda: Stream(empty, 2, 3, 0),
    ):
        with pytest.raises(DataError, match=r"contains no .* to make batches of"):
            kind()
