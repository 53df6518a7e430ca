"""Examples of every synthetic task against a reference implementation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus.synthetic_tasks import TASKS
from elman.corpus.synthetic_tasks.base import SPLITS
from elman.errors import ConfigError, UnknownName

seeds = st.integers(0, 2**32)


def make(name, **settings):
    return TASKS[name](TASKS[name].Config.make(settings))


def parity_answers(row):
    ones, answers = 0, {}
    for place, bit in enumerate(row.tolist()):
        ones += bit
        answers[place] = ones % 2
    return answers


def selective_copying_answers(row):
    row = row.tolist()
    content = [symbol - 2 for symbol in row if symbol > 1]
    return dict(enumerate(content, start=row.index(1)))


def recall_answers(row, keys=32):
    """A value comes after its key; a key without one is a query."""
    row, known, answers, place = row.tolist(), {}, {}, 0
    while place < len(row):
        if place + 1 < len(row) and row[place + 1] >= keys:
            known[row[place]] = row[place + 1] - keys
            place += 1
        else:
            answers[place] = known[row[place]]
        place += 1
    return answers


def adding_answers(row):
    return {len(row) - 1: sum(value for value, mark in row.tolist() if mark == 1)}


def copy_memory_answers(row):
    row = row.tolist()
    content = [symbol for symbol in row if 0 < symbol < 9]
    return {**dict.fromkeys(range(len(row)), 0), **dict(enumerate(content, start=row.index(9) + 1))}


READERS = {
    "parity": parity_answers,
    "selective-copying": selective_copying_answers,
    "recall": recall_answers,
    "adding": adding_answers,
    "copy-memory": copy_memory_answers,
}


@pytest.mark.parametrize("name", list(TASKS))
@given(seed=seeds, split=st.sampled_from(SPLITS))
def test_answers_equal_a_reference_implementation(name, seed, split):
    examples = make(name).examples(split, 3, 5, seed)
    for row, targets, asked in zip(*examples, strict=True):
        right = READERS[name](row)
        judged = np.flatnonzero(asked)
        assert set(judged) <= set(right)
        assert len(judged)
        assert targets[judged] == pytest.approx([right[place] for place in judged.tolist()])


@pytest.mark.parametrize("name", list(TASKS))
@given(seed=seeds)
def test_examples_have_the_declared_symbols_and_shapes(name, seed):
    task = make(name)
    inputs, targets, asked = task.examples("train", 0, 4, seed)
    assert targets.shape == asked.shape == inputs.shape[:2]
    assert asked.dtype == bool
    if task.channels:
        assert inputs.shape[2] == task.channels
    else:
        assert 0 <= inputs.min() <= inputs.max() < task.symbols
    assert not task.answers or 0 <= targets.min() <= targets.max() < task.answers


@pytest.mark.parametrize("name", list(TASKS))
def test_examples_depend_on_seed_split_and_index_only(name):
    task = make(name)
    places = [("train", 0, 1), ("train", 1, 1), ("valid", 0, 1), ("train", 0, 2)]
    drawn = [task.examples(split, number, 8, seed) for split, number, seed in places]
    again = [task.examples(split, number, 8, seed) for split, number, seed in places]
    for one, same in zip(drawn, again, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert len({one.inputs.tobytes() for one in drawn}) == len(drawn)


@given(train=st.integers(1, 50), test=st.integers(2, 80))
def test_parity_tests_on_unseen_lengths(train, test):
    task = make("parity", train_length=train, test_length=test)
    trained = {int(place) + 1 for place in np.flatnonzero(task.examples("train", 0, 2).mask[0])}
    judged = {int(place) + 1 for place in np.flatnonzero(task.examples("test", 0, 2).mask[0])}
    assert trained == set(range(1, train + 1))
    assert judged == set(range(train + 1, max(test, train + 1) + 1))


def test_selective_copying_puts_its_symbols_at_all_places():
    inputs = make("selective-copying", length=6, content=2).examples("train", 0, 300).inputs[:, :6]
    assert {tuple(np.flatnonzero(row > 1)) for row in inputs} == {(a, b) for a in range(6) for b in range(a + 1, 6)}


def test_recall_queries_every_key_in_random_order():
    inputs = make("recall", pairs=3, keys=4, values=4).examples("train", 0, 300).inputs
    told, queries = inputs[:, 0:6:2], inputs[:, 6:]
    assert (np.sort(told) == np.sort(queries)).all()
    assert len({tuple(row.tolist().index(key) for key in asked) for row, asked in zip(told, queries, strict=True)}) == 6


@given(seed=seeds, length=st.integers(2, 9))
def test_adding_marks_one_number_in_each_half(seed, length):
    marks = make("adding", length=length).examples("train", 0, 20, seed).inputs[:, :, 1]
    half = length // 2
    assert (marks[:, :half].sum(axis=1) == 1).all()
    assert (marks[:, half:].sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", list(TASKS))
def test_chance_level_is_that_of_the_best_constant_answer(name):
    """The best constant: the most frequent answer, the mean, or blanks and then uniform symbols."""
    task = make(name)
    _, targets, asked = task.examples("train", 0, 4000)
    if name == "adding":
        found = targets[asked].var()
    elif name == "copy-memory":
        found = np.where(targets == 0, 0, math.log(8)).mean()
    else:
        found = np.bincount(targets[asked]).max() / asked.sum()
    assert found == pytest.approx(task.chance, rel=0.07)


def test_the_published_baselines():
    assert make("adding").chance == pytest.approx(0.167, abs=5e-4)
    assert make("copy-memory", blanks=500).chance == pytest.approx(10 * math.log(8) / 520)


@pytest.mark.parametrize("name", list(TASKS))
def test_solved_lies_between_chance_and_perfect_and_quick_settings_are_settings(name):
    task = make(name, **TASKS[name].quick)
    assert not task.is_solved(task.chance)
    assert 0.8 < task.progress(task.solved) < 1
    assert task.is_solved(1.0 if task.measure == "accuracy" else 0.0)


def test_claims_are_judged_where_their_families_have_scores():
    task = make("parity")
    held = task.expected({"lstm": 1.0, "attention": 0.52})
    assert [(check.statement, check.held) for check in held] == [
        ("lstm 100 % ≥ 99 %", True),
        ("attention 52 % about chance (50 %)", True),
    ]
    assert [check.held for check in task.expected({"lstm": 0.98, "attention": 0.7})] == [False, False]
    assert task.expected({}) == []


def test_a_claim_about_two_needs_a_clear_lead_in_the_direction_of_the_measure():
    memory = make("copy-memory")
    [beats] = memory.expected({"convolution": 0.0, "lstm": memory.chance})[1:]
    assert beats.held
    assert not memory.expected({"convolution": memory.chance, "lstm": 0.0})[1].held
    assert not memory.expected({"convolution": memory.chance * 0.98, "lstm": memory.chance})[1].held


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("recall", {"pairs": 9, "keys": 8}, "as many distinct keys"),
        ("selective-copying", {"length": 3, "content": 4}, "raise length"),
    ],
)
def test_unsatisfiable_settings_are_rejected(name, settings, remedy):
    with pytest.raises(ConfigError, match=remedy):
        make(name, **settings)


def test_unknown_names_are_rejected():
    with pytest.raises(UnknownName, match="did you mean 'parity'"):
        TASKS["party"]
    with pytest.raises(UnknownName, match="valid"):
        make("parity").examples("validation", 0, 1)
