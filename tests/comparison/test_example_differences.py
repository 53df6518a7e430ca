"""Who gets which example right, in races of every task; and results as tables."""

import json
import random
import sys

import numpy as np
import pytest

from elman.comparison import Race, RaceRun, gather, read_results
from elman.comparison.disagreements import _most_different, disagreements
from elman.comparison.parquet import write_parquet
from elman.comparison.report import write_report
from elman.errors import MissingExtra, RunError
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.examples import RIGHT, class_means
from elman.pipeline.tasks.race import ExampleOutput

COLOURS = {"red": "A", "blue": "A", "big": "B", "small": "B", "dog": "C", "cat": "C"}


def tagged(dice):
    words = [*dice.choices(list(COLOURS), k=dice.randint(2, 6)), "w" + "".join(dice.choices("xyz", k=5))]
    return "".join(f"{word}\t{COLOURS.get(word, 'D')}\n" for word in words) + "\n"


DATA = {
    "classify": ("data.tsv", lambda dice: f"{(a := dice.choice('ab'))}\t{a}{a} {dice.choice('xyz')} word\n"),
    "tag": ("data.conll", tagged),
    "translate": ("data.tsv", lambda dice: f"{(word := ''.join(dice.choices('abc', k=3)))}\t{word[::-1]}\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_every_task_shows_who_gets_which_example_right(task, small, tmp_path):
    """What is kept of each example adds up to the score. Catches answers in the order of batches."""
    name, draw = DATA[task]
    dice = random.Random(1)
    head = "label\ttext\n" if task == "classify" else ""
    (tmp_path / name).write_text(head + "".join(draw(dice) for _ in range(120)))
    small |= {"entrants": ["rnn", "gru"], "trials": 1, "seeds": 1, "tokens": 400, "parameters": "100k"}
    small["recipe"] = {"device": "cpu", "task": task, "data": {"train": str(tmp_path / name), "valid_fraction": 0.3}}
    small["recipe"]["training"] = {"batch_size": 8, "learning_rate": 0.01}
    running = RaceRun(Race.make(small), tmp_path / "race", workers=1)
    list(running.events())
    found = gather(running)
    costs = write_report(found, running, []).read_text().partition('id="costs"')[2].partition("</section>")[0]
    assert TASKS[task].cost_note.partition(".")[0] in costs
    speed, other = ("generation tokens/s", "answers/s") if task == "translate" else ("answers/s", "generation tokens/s")
    assert (speed in costs, other in costs) == (True, False)
    assert ("state bytes" in costs) == (task != "tag")
    lines = [json.loads(line) for line in (tmp_path / "race" / "examples.jsonl").read_text().splitlines()]
    for row in found.rows:
        own = [line["scores"][row["entrant"]] for line in lines]
        assert [line["said"][row["entrant"]] == RIGHT for line in lines] == [score == 1 for score in own]
        sizes = [len(line["text"].split()) for line in lines] if task == "tag" else [1] * len(lines)
        whole = sum(score * size for score, size in zip(own, sizes, strict=True)) / sum(sizes)
        key = "exact_match" if task == "translate" else "accuracy"
        assert whole == pytest.approx(row["figures"][key])
        by_length = row["by_length"]
        mean = sum(one["accuracy"] * one["tokens"] for one in by_length) / sum(one["tokens"] for one in by_length)
        assert mean == pytest.approx(whole)
    frequencies = found.rows[0].get("by_frequency")
    assert (frequencies is not None) == (task == "tag")
    if frequencies:  # every sentence has a word that was most likely never seen
        assert frequencies[0]["from"] == 0
        assert sum(one["tokens"] for one in frequencies) == sum(len(line["text"].split()) for line in lines)


@pytest.mark.slow
def test_a_race_of_language_models_keeps_the_likelihood_of_each_text(raced):
    """The session's race: of all entrants, and a table of the best two."""
    found = gather(raced)
    table = disagreements(found, raced)
    lines = [json.loads(line) for line in (raced.folder / "examples.jsonl").read_text().splitlines()]
    assert all(line["scores"].keys() == {"ngram", "rnn"} for line in lines)
    assert all(score < 0 for line in lines for score in line["scores"].values())
    differences = [float(row[-1]) for row in table.rows]
    assert differences == sorted(differences)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["results.json", "units.npy"])
def test_an_edited_result_gives_no_other_verdict(raced, name):
    """Catches: a loss or the likelihood of a text that was made smaller by hand."""
    gather(raced)
    path = raced.jobs["ngram"][0].folder / name
    before = path.read_bytes()
    path.write_bytes(before[:-9] + bytes([before[-9] ^ 1]) + before[-8:])
    try:
        with pytest.raises(RunError, match=rf"ngram/seed-1/{name}: changed since it was written.*elman accept"):
            gather(raced)
    finally:
        path.write_bytes(before)


def test_shown_are_gains_then_losses_of_the_best_over_the_next():
    """Catches the second's view."""
    scores = [[1, 0, 0], [0, 1, 1], [1, 1, 0], [0.5, 0.25, 0]]
    every = [ExampleOutput(str(place), "", [], list(map(float, one))) for place, one in enumerate(scores)]
    assert [one.text for one in _most_different(every)] == ["0", "3", "1"]
    assert [one.text for one in _most_different([every[2]])] == ["2"]
    assert _most_different([ExampleOutput("same", "", [], [1.0, 1.0])]) == []


def test_classes_hold_everything_once():
    sizes, edges = np.array([0, 1, 5, 10, 99]), np.array([0, 1, 10])
    found = class_means(sizes, edges, np.array([1.0, 0, 1, 1, 0]), np.ones(5), "accuracy")
    assert found == [
        {"from": 0, "to": 0, "tokens": 1, "accuracy": 1.0},
        {"from": 1, "to": 9, "tokens": 2, "accuracy": 0.5},
        {"from": 10, "to": 99, "tokens": 2, "accuracy": 0.5},
    ]


ROWS = [
    {"entrant": "a", "score": 1.0, "figures": {"loss": 1.0}, "by_seed": [1, 2.5], "place": 1, "against": None,
     "model": {"pattern": [{"lstm": {}}]}, "failures": {}},
    {"entrant": "b", "score": None, "figures": {"loss": 2.0, "f1": 0.5}, "by_seed": [3], "place": None,
     "against": {"p": 0.5, "why": "overlap"}, "model": {"order": 3}, "failures": {"seed-1": "disk full"}},
]  # fmt: skip


def test_a_table_in_parquet_has_what_the_lines_have(tmp_path):
    """Catches a kind chosen for each row: models that differ would not fit into one column."""
    pq = pytest.importorskip("pyarrow.parquet")
    write_parquet(ROWS, tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet").to_pydict()
    assert table["entrant"] == ["a", "b"]
    assert table["score"] == [1.0, None]
    assert table["figures.f1"] == [None, 0.5]
    assert table["by_seed"] == [[1.0, 2.5], [3.0]]
    assert table["against.why"] == [None, "overlap"]
    assert [json.loads(one) for one in table["model"]] == [row["model"] for row in ROWS]


@pytest.mark.slow
def test_without_pyarrow_a_race_still_has_its_results(raced, monkeypatch):
    gather(raced)
    assert (raced.folder / "results.parquet").exists()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"elman\[data\]"):
        write_parquet(ROWS, raced.folder / "no.parquet")
    gather(raced)
    assert len(read_results(raced.folder)) == 3
