"""Predictions on a Ray cluster: the same file as on one machine, also where a worker is lost or the job stops."""

import json
import pickle
import sys
from importlib.util import find_spec

import pytest
import torch
from processes import run_elman, run_python

import elman
from elman.errors import DataError, MissingExtra
from elman.pipeline import predict_tables
from elman.pipeline.predict_tables import TablePrediction
from elman.pipeline.ray_predictions import PartWorker, RayPrediction
from elman.ray_cluster import connect

JOB = """
import json
from pathlib import Path
import elman
from elman.pipeline import ray_predictions
from elman.pipeline.ray_predictions import RayPrediction

ray_predictions.PART_RECORDS = 40
run = Path("run").absolute()

class Losing(RayPrediction):
    def _workers(self, ray, to):
        self.workers = super()._workers(ray, to)
        return self.workers

    def lose_one(self, done, share):
        "Once another part is there."
        if self.workers:
            import ray
            ray.kill(self.workers[0], no_restart=False)
            self.workers = []

def stop(done, share):
    raise KeyboardInterrupt

def job():
    return Losing("local", [run], "cpu", lambda: None, elman.load(run, "cpu"), "lines.txt")

try:
    job().to_file(Path("there.jsonl"), stop)
except KeyboardInterrupt:
    parts = len([*Path("there.jsonl.parts").glob("0*")])
again = job()
again.to_file(Path("there.jsonl"), again.lose_one)
print(json.dumps({"parts": parts, "lost": again.workers == [], "notes": again.notes}))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A tagger, raw sentences, and records of which one is wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.conll").write_text("the\tD\ncat\tN\n\na\tD\ndog\tN\n\n" * 12)
    recipe = {"task": "tag", "data": {"train": "train.conll"}, "model": {"hidden_size": 8}, "device": "cpu"}
    elman.train({**recipe, "training": {"max_steps": 3, "batch_size": 4, "log_every": 1}}, run="run", progress=False)
    (tmp_path / "lines.txt").write_text("".join(f"the cat, a dog{number}.\n" for number in range(200)))
    records = [{"words": ["a", "dog"]}] * 100 + [{"text": "a dog."}, {"words": 3}]
    (tmp_path / "wrong.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    return tmp_path


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(predict_tables, "PART_RECORDS", 40)


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'elman[ray]'")
def test_the_file_is_the_same_as_on_one_machine(place):
    """Of 200 lines in 5 parts, after a stop and the loss of a worker. Catches parts in another order, and a note for
    each worker."""
    here = TablePrediction(elman.load("run", "cpu"), "lines.txt")
    here.to_file(place / "here.jsonl")
    ended = run_python("-c", JOB, cwd=place)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert (place / "there.jsonl").read_bytes() == (place / "here.jsonl").read_bytes()
    assert (found["parts"], found["lost"]) == (1, True)
    assert "200 raw sentences" in here.notes[0]
    assert "160 raw sentences" in found["notes"][0]  # those of this time


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_a_worker_answers_as_this_process_does(place):
    """Catches lines whose numbers begin at 0 in each part, and errors that lose their line on the way."""
    there = RayPrediction("none", [place / "run"], "cpu", bool, elman.load("run", "cpu"), "wrong.jsonl", to="jsonl")
    worker = PartWorker(there.prepare, there.runs, "cpu", torch.get_num_threads(), there.settings("jsonl"), there.head)
    records = [*there._table.records]
    content, counts = worker.part(80, 40, records[80:101])
    here = TablePrediction(elman.load("run", "cpu"), "wrong.jsonl")
    with pytest.raises(DataError, match=r"wrong.jsonl, line 102") as expected:
        here.to_file(place / "here.jsonl")
    error = pickle.loads(pickle.dumps(worker.part(80, 40, records[80:])))
    assert str(error) == str(expected.value)
    assert counts["lines_split"] == 1
    good = "".join(f"{line}\n" for line in (place / "wrong.jsonl").read_text().splitlines()[:101])
    (place / "good.jsonl").write_text(good)
    TablePrediction(elman.load("run", "cpu"), "good.jsonl").to_file(place / "good-out.jsonl")
    assert (place / "good-out.jsonl").read_bytes().endswith(content)
    assert content.count(b"\n") == 21


def test_what_the_cluster_needs_is_said(place, monkeypatch):
    ended = run_elman("predict", "run", "--data", "lines.txt", "--ray", "local", cwd=place)
    assert (ended.returncode, ended.stderr) == (2, "elman: --ray predicts parts of a file: name it with --out\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"predicting on a cluster of Ray needs the package 'ray'.*elman\[ray\]"):
        connect("local", "predicting on a cluster of Ray")
