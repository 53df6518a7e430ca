"""The short form of benchmarks/attack/numbers.py."""

import pytest

from benchmarks.attack.numbers import CASES, FINE, TASKS, attack_in_folder

PAIRS = [
    ("language model", "one token"),
    ("language model, state carried", "sequences of length 1"),
    ("n-gram", "vocabulary of one"),
    ("masked", "learning rate 1e6"),
    ("classify", "one answer"),
    ("classify, several labels", "one token"),
    ("regress", "answers near the largest number"),
    ("tag", "learning rate 1e6, plain descent"),
    ("translate", "batch larger than data"),
    ("translate", "0 epochs"),
]


@pytest.mark.slow
def test_extreme_data_and_settings_end_in_a_usable_run_or_a_refusal() -> None:
    """Catches: a rate of a million that ends without a word; damaged weights that are answered with."""
    assert {task for task, _ in PAIRS} == set(TASKS)
    assert {case for _, case in PAIRS} < set(CASES)
    found = {pair: attack_in_folder(pair) for pair in PAIRS}
    assert {end for end, _ in found.values()} == {*FINE}, found
