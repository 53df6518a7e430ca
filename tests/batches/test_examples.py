"""Examples keep their fields together, occur once per epoch, and have no data in padding."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.batches.examples import Buckets, Examples, ExampleStore, Ragged
from elman.batches.store import TokenStore
from elman.errors import DataError


def store_of(folder, lengths, name="train"):
    """Example k holds the numbers k·100 … and its own number."""
    rows = [
        {"text": np.arange(k * 100, k * 100 + n), "twice": np.arange(2 * n), "label": k} for k, n in enumerate(lengths)
    ]
    return ExampleStore.build(rows, folder, name, fingerprint="f")


@settings(max_examples=25)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=30), st.integers(1, 6), st.booleans(), st.integers(0, 3))
def test_epoch_has_every_example_once(tmp_path_factory, lengths, size, shuffle, epoch):
    """Catches padding taken from the next example, and with the last group left out."""
    store = store_of(tmp_path_factory.mktemp("store"), lengths)
    buckets = Buckets(store, size, seed=1, by=("text",), unit="text", shuffle=shuffle)
    batches = list(buckets.epoch(epoch))
    assert len(batches) == buckets.length_of(epoch)
    found = torch.cat([batch.plain("label") for batch in batches])
    assert sorted(found.tolist()) == list(range(len(lengths)))
    assert sum(batch.real for batch in batches) == sum(lengths)
    for batch in batches:
        text = batch.ragged("text")
        assert (text.values[~text.mask()] == 0).all()
        for row, label in enumerate(batch.plain("label").tolist()):
            real = text.values[row, : text.lengths[row]]
            assert real.tolist() == list(range(label * 100, label * 100 + lengths[label]))
            assert batch.ragged("twice").lengths[row] == 2 * lengths[label]


def test_epochs_are_deterministic_and_resumable(tmp_path):
    store = store_of(tmp_path, [3, 1, 4, 1, 5, 9, 2, 6])
    one, other = (Buckets(store, 3, seed=7, by=("text",)) for _ in range(2))
    for start in range(4):
        for ours, theirs in zip(one.epoch(2, start), list(other.epoch(2))[start:], strict=True):
            assert torch.equal(ours.plain("label"), theirs.plain("label"))
    orders = [torch.cat([batch.plain("label") for batch in one.epoch(number)]).tolist() for number in (0, 1)]
    assert orders[0] != orders[1]


def test_rows_and_units():
    """Catches a count of all examples."""
    fields = {"text": Ragged(torch.ones(4, 3), torch.tensor([3, 2, 1, 0])), "label": torch.arange(4)}
    assert (Examples(fields).real, Examples(fields, unit="text").real) == (4, 6)
    part = Examples(fields, unit="text").rows(slice(1, None, 2))
    assert (part.size, part.real, part.plain("label").tolist()) == (2, 2, [1, 3])


@pytest.mark.parametrize("damage", ["json", "deep", "short", "ends", "missing"])
def test_damaged_store_is_rejected(tmp_path, damage):
    store_of(tmp_path, [3, 1])
    facts = tmp_path / "train.json"
    if damage == "json":
        facts.write_text("{")
    elif damage == "deep":
        facts.write_text('{"a":' * 100_000)
    elif damage == "short":
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "count": 3}))
    elif damage == "ends":
        np.save(tmp_path / "train.text.ends.npy", np.array([5, 4]))
    else:
        (tmp_path / "train.text.npy").unlink()
    with pytest.raises(DataError, match=r"example store|npy: damaged"):
        ExampleStore(tmp_path, "train")


def test_reading_is_bounded(tmp_path, monkeypatch):
    """Catches: a file of any size read whole."""
    store_of(tmp_path, [3, 1])
    monkeypatch.setenv("ELMAN_LIMITS", "json_bytes=10")
    for kind in (ExampleStore, TokenStore.open):
        with pytest.raises(DataError, match="at most 10 are read"):
            kind(tmp_path, "train")


@pytest.mark.parametrize("name", ["text", "text.ends", "label"])
def test_a_changed_value_is_found(tmp_path, name):
    store_of(tmp_path, [3, 1])
    path = tmp_path / f"train.{name}.npy"
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    with pytest.raises(DataError, match=rf"train\.{name}\.npy|damaged"):
        ExampleStore(tmp_path, "train")


def test_error_for_no_examples(tmp_path):
    with pytest.raises(DataError, match="contains no example"):
        Buckets(ExampleStore.build([], tmp_path, "train"), 2, by=())
