"""elman tasks: computes missing results, and shows results files as one table."""

import json

import pytest

from elman.corpus.synthetic_tasks import TASKS
from elman.pipeline.synthetic_tasks import FAMILIES, SIZES
from elman.pipeline.synthetic_tasks.records import Size
from elman.training.config import TrainingConfig

SOME = ["--family", "rnn", "--family", "attention", "--device", "cpu"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    training = TrainingConfig(batch_size=4, max_steps=2, evaluate_every=1, optimizer="adam")
    monkeypatch.setitem(SIZES, "quick", Size(500, training))
    return tmp_path


def test_help_fits_eighty_columns(elman):
    ended = elman("tasks", "--help")
    assert ended.code == 0
    assert "Usage: elman tasks" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


@pytest.mark.slow
def test_json_on_stdout_and_progress_on_stderr(elman, tiny):
    ended = elman("tasks", "--task", "parity", *SOME, "--seeds", "2", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert {"rnn", "attention"} == found["tasks"]["parity"]["scores"].keys()
    assert len(found["results"]) == 4
    assert {"score", "steps", "seconds", "steps_to_solved"} <= found["results"][0].keys()
    assert "4/4 parity attention seed 2:" in ended.err
    assert len((tiny / "runs" / "tasks-quick.jsonl").read_text().splitlines()) == 4


def test_several_results_files_make_one_table(elman):
    for name in ("parity", "adding"):
        elman("tasks", "--task", name, *SOME, "--out", f"{name}.jsonl")
    ended = elman("tasks", "--show", "parity.jsonl", "adding.jsonl")
    assert ended.code == 0
    assert not ended.err
    assert all(word in ended.out for word in ["parity", "adding", "rnn", "attention", "50 %", "0.167", " *"])
    assert "reproduced" in ended.out
    both = json.loads(elman("tasks", "--show", "parity.jsonl", "adding.jsonl", "--json").out)
    assert list(both["tasks"]) == ["adding", "parity"]


def test_the_full_table_fits_eighty_columns(elman, tiny):
    """Of made-up scores, as training all would take too long."""
    settings = {"task": {}, "training": {}}
    common = {"seed": 1, "valid": 0.0, "solved": False, "steps": 1, "steps_to_solved": None, "seconds": 1.0}
    common |= {"parameters": 1, "device": "cpu", "settings": settings, "score": 0.1239}
    lines = [json.dumps({"task": task, "family": family, **common}) for task in TASKS for family in FAMILIES]
    (tiny / "all.jsonl").write_text("\n".join(lines) + "\n")
    ended = elman("tasks", "--show", "all.jsonl")
    table = [line for line in ended.out.splitlines() if line[:1] in ("┏", "┃", "┡", "│", "└")]
    assert [line.split()[1] for line in table if line.startswith("│")] == list(FAMILIES)
    assert max(map(len, table)) <= 80
    assert ended.out.count("reproduced") == len(TASKS)


def test_results_in_the_file_are_not_computed_again(elman, tiny):
    words = ["tasks", "--task", "parity", *SOME, "--out", "kept.jsonl", "--json"]
    first = elman(*words).out
    before = (tiny / "kept.jsonl").read_bytes()
    assert elman(*words).out == first
    assert (tiny / "kept.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "remedy"),
    [
        (["--task", "party"], 2, "did you mean 'parity'"),
        (["--family", "lsmt"], 2, "did you mean 'lstm'"),
        (["--size", "ful"], 2, "did you mean 'full'"),
        (["--show"], 2, "elman tasks --show a.jsonl"),
        (["a.jsonl"], 2, "for --show only"),
        (["--show", "a.jsonl"], 1, "a.jsonl"),
        (["--show", "/dev/null"], 1, "/dev/null: not a regular file"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(elman, tiny, words, code, remedy):
    ended = elman("tasks", *words)
    assert ended.code == code
    assert remedy in ended.err
    assert not (tiny / "runs").exists()
