"""The run folder, its log, and the record of its environment."""

import errno
import json
import math
import os
import warnings

import pytest
from crashing import At, fail, hooked, make
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import RunError
from elman.files import RunWarning
from elman.runs.environment import environment
from elman.runs.metrics import MetricsLog, read_metrics
from elman.runs.run import Run


def test_new_run_has_the_documented_layout(tmp_path):
    run = Run.create(tmp_path / "runs" / "gru", "model: gru\n", {"cpus": 2})
    assert run.config.read_text() == "model: gru\n"
    assert json.loads(run.environment.read_text()) == {"cpus": 2}
    assert all((run.folder / name).is_dir() for name in ("samples", "plots", "data", "best", "last"))
    again = Run.open(run.folder)
    assert again.last.newest() is None
    again.best.save(make(3))
    assert run.best.load().step == 3
    assert run.best.newest().parent == run.folder / "best"


def test_existing_run_is_rejected_and_unchanged(tmp_path):
    run = Run.create(tmp_path / "run", "model: gru\n", {})
    with pytest.raises(RunError, match="contains a run already; continue it with --resume, or use another --run"):
        Run.create(run.folder, "model: lstm\n", {})
    assert run.config.read_text() == "model: gru\n"


@pytest.mark.parametrize("name", ["thesis.txt", "data/text.txt", "metrics.jsonl"])
def test_folder_with_other_files_is_rejected_and_unchanged(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunError, match=r"not empty .* and not a run; use another --run"):
        Run.create(tmp_path, "", {})
    assert sorted(tmp_path.rglob("*")) == before


def test_concurrent_creation_succeeds_once(tmp_path):
    def other_is_first(operation, *paths):
        if operation == "make" and paths == (tmp_path / "run",) and not paths[0].exists():
            with hooked(lambda *_: None):
                Run.create(tmp_path / "run", "first\n", {})

    with hooked(other_is_first), pytest.raises(RunError, match="contains a run already"):
        Run.create(tmp_path / "run", "second\n", {})
    assert Run.open(tmp_path / "run").config.read_text() == "first\n"


def test_an_empty_folder_may_become_a_run(tmp_path):
    assert Run.create(tmp_path, "", {}).config.exists()


def test_only_a_run_folder_can_be_opened(tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        Run.open(tmp_path / "missing")
    with pytest.raises(RunError, match=r"not a run folder: it has no config\.yaml"):
        Run.open(tmp_path)


def test_the_log_of_a_resumed_run_equals_that_of_an_uninterrupted_one(tmp_path):
    records = [{"step": step, "loss": 1 / (step + 1), "text": "ä\n"} for step in range(10)]
    straight, broken = MetricsLog(tmp_path / "a.jsonl"), MetricsLog(tmp_path / "b.jsonl")
    for record in records:
        straight.write(record)
    for record in records[:4]:
        broken.write(record)
    position = broken.position()
    for record in records[4:7]:
        broken.write(record)
    with open(broken.path, "ab") as file:
        file.write(b'{"step": 7, "lo')
    broken = MetricsLog(broken.path)
    broken.truncate_to(position)
    for record in records[4:]:
        broken.write(record)
    assert broken.path.read_bytes() == straight.path.read_bytes()
    assert read_metrics(broken.path) == records
    assert straight.position() == broken.position()
    assert straight.position()[0] == straight.path.stat().st_size


def test_each_line_is_readable_immediately(tmp_path):
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(3):
        metrics.write({"step": step})
        assert len(read_metrics(metrics.path)) == step + 1


def test_numbers_that_are_not_finite_become_null(tmp_path):
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.write({"loss": math.nan, "inner": {"norms": [1.0, math.inf]}})
    assert read_metrics(metrics.path) == [{"loss": None, "inner": {"norms": [1.0, None]}}]


@given(cut=st.integers(0, 60))
def test_truncated_log_can_be_read(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    metrics = MetricsLog(path)
    for step in range(4):
        metrics.write({"step": step})
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        records = read_metrics(path)
    assert records == [{"step": step} for step in range(data.count(b"\n"))]
    assert [warning.category for warning in told] == ([] if data.endswith(b"\n") or not data else [RunWarning])
    MetricsLog(path).write({"step": 99})
    assert read_metrics(path) == [*records, {"step": 99}]


@pytest.mark.parametrize("line", [b"{]", b"3", b"", b"\0\0\0", b"\xff"])
def test_a_bad_line_in_the_middle_is_an_error_with_its_number(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: "):
        read_metrics(path)


@pytest.mark.parametrize("position", [3, 1000, [12, "0" * 64]])
def test_a_position_that_does_not_fit_the_log_is_rejected(tmp_path, position):
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1})
    with pytest.raises(RunError, match="changed before byte"):
        metrics.truncate_to(position)
    assert read_metrics(metrics.path) == [{"step": 1}]


def test_failed_write_leaves_no_partial_line(tmp_path, monkeypatch):
    monkeypatch.setattr("elman.files.CHUNK", 5)
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1})
    with hooked(At(3, fail(OSError(errno.ENOSPC, "full")))), pytest.raises(RunError, match="bytes free"):
        metrics.write({"step": 2, "loss": 3.0})
    metrics.write({"step": 3})
    assert read_metrics(metrics.path) == [{"step": 1}, {"step": 3}]


def test_a_missing_log_is_an_error(tmp_path):
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be read"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_position_is_synced_before_it_is_returned(tmp_path):
    operations = []
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1})
    with hooked(lambda name, *paths: operations.append((name, *paths))):
        metrics.position()
    assert operations == [("sync", metrics.path)]


def test_environment_has_versions_and_hardware_only():
    facts = environment()
    assert set(facts) == {"started", "python", "packages", "platform", "cpus", "threads", "gpus", "cuda"}
    assert set(facts["packages"]) == {"elman", "torch", "numpy", "tokenizers", "safetensors"}
    assert facts["packages"]["torch"][0].isdigit()
    assert facts["threads"] >= 1
    text = json.dumps(facts)
    assert os.uname().nodename not in text
    assert os.path.expanduser("~") not in text
    assert os.getcwd() not in text
