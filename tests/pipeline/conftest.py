"""Small texts and recipes for whole runs: seconds on one core."""

import random
import signal

import pytest


@pytest.fixture(autouse=True)
def _interrupts_are_heard():
    """A suite started in the background inherits an ignored SIGINT; the tests need Python's own handling of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the test works: a text of a hundred lines, and room for runs."""
    dice = random.Random(1)
    words = ["the", "a", "cat", "dog", "sat", "ran", "saw", "on", "and", "big"]
    lines = [" ".join(dice.choices(words, k=dice.randint(2, 9))) for _ in range(100)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe():
    """A stream with all that has a memory: dropout, carried state, micro-batches, a schedule."""
    training = {"batch_size": 6, "sequence_length": 10, "micro_batches": 2, "max_epochs": 1, "schedule": "cosine"}
    training |= {"evaluate_every": 5, "save_every": 4, "log_every": 3}
    return {
        "device": "cpu",
        "data": {"train": "text.txt", "boundary": "carry"},
        "tokenizer": "character",
        "model": {"type": "gru", "hidden_size": 12, "dropout": 0.2, "weight_dropout": 0.2},
        "training": training,
    }
