"""The recurrence benchmark without a GPU: order of cases, verdicts, and robustness to failures."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import HANG, environment, run_forked
from torch import Tensor

from benchmarks.recurrence import against, running, timing
from benchmarks.recurrence.against import ratios
from benchmarks.recurrence.cases import CASES, Case, chosen, divisions
from benchmarks.recurrence.checking import check, verdict
from benchmarks.recurrence.peers import Variant
from benchmarks.recurrence.report import lines
from benchmarks.recurrence.workers import Worker
from elman.compiler.triton.partition import Partition
from elman.recurrence import FORMS, compiled_triton
from elman.recurrence.reference import run as loop

SMALL = (3, 5, 8)
PASSES = ("forward", "training")


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def test_cases_are_ordered_and_have_unique_names() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    first = ["lstm 64x512x256", "gru 64x512x512", "gru reset=before 64x512x512", "rnn 64x512x512"]
    assert names[1:5] == first
    places = [names.index(f"lstm {form} 64x512x512") for form in ("two layers", "both ways", "ragged")]
    assert max(places) < names.index("lstm 32x1024x1024") < names.index("lstm sweep 64x512x256")
    assert [case.name for case in chosen(["lstm both ways 64", "gru sweep"])] == [
        "lstm both ways 64x512x512",
        "gru sweep 64x512x512",
    ]
    assert chosen([]) == CASES
    (swept,) = chosen(["gru sweep"])
    assert len(divisions(swept)) > 3


@pytest.mark.parametrize(
    ("cell", "form"), [("lstm", ""), ("gru", "both ways"), ("lstm", "two layers"), ("rnn", "ragged")]
)
def test_a_correct_implementation_is_as_close_to_float64_as_its_peer(cell: str, form: str) -> None:
    """Catches: gradients of the input of two runs were added up, so that the peer was always wrong, and ours right."""
    found = check(Case(cell, SMALL, form=form, draws=16), "fp32", "cpu", "compiled")
    assert found["verdict"] == "right"
    assert max(found["ours"].values()) < 1e-5
    assert max(found["vendor"].values()) < 1e-5


@pytest.mark.parametrize("which", ["outputs", "states", "gradients"])
def test_wrong_outputs_states_and_gradients_are_found(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(cell: Any, x: Any, state: Any, lengths: Any) -> Any:
        outputs, state = loop(cell, x, state, lengths)
        if which == "outputs":
            return outputs + 0.001 * outputs.detach(), state
        if which == "states":
            return outputs, state + 0.001 * state.detach()
        return outputs.detach() + 1.001 * (outputs - outputs.detach()), state

    monkeypatch.setitem(FORMS, "compiled", FORMS["compiled"]._replace(run=wrong))
    found = check(Case("gru", SMALL), "fp32", "cpu", "compiled")
    assert found["verdict"] == "wrong"
    assert found["ours"][which] > 1e-4


def test_an_error_in_one_of_many_draws_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: medians of the draws."""
    runs = iter(range(16))

    def wrong(cell: Any, x: Any, state: Any, lengths: Any) -> Any:
        outputs, state = loop(cell, x, state, lengths)
        return (outputs * 1.001 if next(runs) == 7 else outputs), state

    monkeypatch.setitem(FORMS, "compiled", FORMS["compiled"]._replace(run=wrong))
    assert check(Case("gru", SMALL, draws=16), "fp32", "cpu", "compiled")["verdict"] == "wrong"


def test_verdicts_by_error_relative_to_the_peer() -> None:
    theirs = {"outputs": 1e-3, "states": 1e-3, "gradients": 1e-2}
    assert verdict(theirs, theirs) == "right"
    assert verdict({**theirs, "states": 2e-3}, theirs) == "less exact"
    assert verdict({**theirs, "states": 6e-3}, theirs) == "wrong"
    assert verdict({**theirs, "states": float("inf")}, theirs) == "wrong"


def test_a_failing_variant_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REPEATS", 4)
    leaf = torch.zeros(1, requires_grad=True)

    def broken() -> Any:
        raise RuntimeError("out of shared memory")

    made = {"ours": Variant(broken, [leaf], 2), "torch": Variant(lambda: leaf * 2, [leaf], 2), "loop": "not captured"}
    found = timing.timed(made, "training", "cpu")
    assert found["ours"] == "RuntimeError: out of shared memory"
    assert found["torch"]["low"] <= found["torch"]["us"] <= found["torch"]["high"]
    assert found["loop"] == "not captured"


ANSWERING = f"""
import json, sys, time
for line in sys.stdin:
    job = json.loads(line)
    if job["do"] == "die":
        sys.exit("the device is lost")
    if job["do"] == "hang":
        time.sleep({HANG})
    print("some noise")
    print(json.dumps({{"did": job["do"]}}), flush=True)
"""


def test_a_worker_that_dies_or_hangs_is_reported_and_replaced() -> None:
    worker = Worker([sys.executable, "-c", ANSWERING])
    try:
        assert worker.ask({"do": "this"}, HANG) == {"did": "this"}
        told = worker.ask({"do": "die"}, HANG)["failed"]
        assert told == "its process ended with code 1: the device is lost"
        assert worker.ask({"do": "that"}, HANG) == {"did": "that"}
        assert worker.ask({"do": "hang"}, 1) == {"failed": "it took longer than 1 s"}
        assert worker.ask({"do": "more"}, HANG) == {"did": "more"}
    finally:
        worker.close()


LOSING = """
import os
from benchmarks.recurrence.workers import serve

def run(what):
    return {"did": 1 // what, "by": os.getpid()}

def healthy():
    raise RuntimeError("the device is lost")

serve({"run": run}, healthy)
"""


@pytest.mark.slow
def test_a_worker_with_a_lost_device_answers_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the next job was sent to the process that was about to end."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    worker = Worker([sys.executable, "-c", LOSING])
    try:
        before = worker.ask({"job": "run", "what": 1}, HANG)
        assert worker.ask({"job": "run", "what": 1}, HANG) == before
        told = worker.ask({"job": "run", "what": 0}, HANG)
        assert told == {"failed": "ZeroDivisionError: integer division or modulo by zero"}
        after = worker.ask({"job": "run", "what": 1}, HANG)
        assert after["did"] == 1
        assert after["by"] != before["by"]
    finally:
        worker.close()


class StandIn(Worker):
    """A fake worker: gru is wrong, rnn fails, timing of lstm ends the process; the rest succeeds."""

    def start(self) -> None:
        pass

    def ask(self, job: Any, limit: float) -> dict[str, Any]:
        cell = job["case"]["cell"]
        if job["job"] == "clock":
            times = {f"ours {kind}": {"us": 2.0, "low": 1.0, "high": 3.0} for kind in job["kinds"]}
            times |= {"torch bf16": {"us": 9.0, "low": 8.0, "high": 9.5}}
            return {"failed": "its process ended"} if cell == "lstm" else {"forward": times, "training": times}
        if cell == "rnn" or job["kind"] == "fp16":
            return {"failed": "CompilationError: no"}
        ours = {"outputs": 1e-3, "states": 1e-3, "gradients": 1e-2}
        return {"verdict": "wrong" if cell == "gru" else "right", "ours": ours, "vendor": ours, "first_call_s": 1.0}


def test_failures_are_recorded_and_the_other_cases_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(running, "WAVE", 2)
    kept: list[Any] = []

    def watched(results: dict[str, Any]) -> None:
        path = save(results)
        kept.append(json.loads(path.read_text())["results"]["cases"])

    save = running.save
    monkeypatch.setattr(running, "save", watched)
    cells = ("lstm", "gru", "rnn", "peephole")
    running.run([Case(cell, SMALL, kinds=("bf16", "fp16")) for cell in cells], 1, StandIn)
    lstm, gru, rnn, peephole = kept[-1]
    assert lstm["times"] == {"failed": "its process ended"}
    assert gru["times"] == rnn["times"] == {"skipped": "all of it failed or is wrong"}
    assert [one.get("failed") for one in rnn["checks"]] == ["CompilationError: no"] * 2
    assert list(peephole["times"]["forward"]) == ["ours bf16", "torch bf16"]
    assert [len(cases) for cases in kept] == [1, 2, 2, 2, 3, 4, 4, 4]
    told = capsys.readouterr().out
    assert "not timed: its process ended" in told
    assert "9.00 (4.5 x) / 9.00 (4.5 x)" in told


def test_a_partition_applies_to_the_backward_pass() -> None:
    """Catches: a division that is given to the forward pass alone, so that every sweep times the same backward."""
    seen = []

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append(dict(compiled_triton._forced))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            seen.append(dict(compiled_triton._forced))
            return grad

    x = torch.ones(2, requires_grad=True)
    divided = {"forward": Partition(8, 16), "backward": Partition(16, 32)}
    variant = Variant(lambda: Noting.apply(x), [x], 1, divided)
    variant.passes["training"]()
    variant.passes["forward"]()
    assert seen == [divided] * 3
    assert not compiled_triton._forced


def test_a_sweep_without_partitions_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUT", raising=False)
    monkeypatch.setattr(running, "divisions", lambda case: 1 // 0)
    found = running.run([Case("lstm", SMALL, form="sweep"), Case("peephole", SMALL)], 1, StandIn)["cases"]
    assert found[0]["checks"] == [{"failed": "ZeroDivisionError: integer division or modulo by zero"}]
    assert "forward" in found[1]["times"]
    assert "FAILED: ZeroDivisionError" in lines(found[0])[1]


def test_cases_that_run_alone_are_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: it waits for its wave."""
    monkeypatch.setattr(running, "WAVE", 2)
    many = [Case("rnn", (1, 1, size)) for size in (1, 2, 3)]
    alone = Case("gru", SMALL, form="alone", timed=False)
    assert running._waves([*many, alone]) == [[alone], many[:2], many[2:]]


def test_no_case_starts_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUT", raising=False)
    (row,) = running.run([Case("lstm", SMALL)], 0, StandIn)["cases"]
    assert row["checks"] == [{"kind": "bf16", "failed": "there was no time left"}]


@pytest.mark.slow
def test_the_command_line_runs_a_few_small_cases(tmp_path: Path) -> None:
    names = ["--only", "lstm both ways 64", "gru reset=before 64", "coupled ragged exact"]
    command = ["-m", "benchmarks.recurrence", "--small", "--minutes", "30", *names]
    done = run_forked(*command, env=environment(OUT=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "recurrence.json").read_text())
    assert kept["machine"]["torch"] == torch.__version__
    before, both, exact = kept["results"]["cases"]
    assert [one["verdict"] for row in (before, both, exact) for one in row["checks"]] == ["right"] * 3
    for row in (before, both):
        assert all(one["us"] > 0 for way in row["times"].values() for one in way.values())
    assert exact["times"] == {"skipped": "it is only checked"}


def test_a_variant_that_became_slower_has_a_ratio_above_one():
    def clocked(ours: float, torchs: float) -> dict:
        return {way: {"ours bf16": {"us": ours}, "torch bf16": {"us": torchs}, "broken": "why"} for way in PASSES}

    spans = {"old": [clocked(2.0, 5.0), clocked(2.2, 5.0)], "new": [clocked(2.6, 5.0), clocked(2.5, 5.5)]}
    rows = {(row["pass"], row["variant"]): row["ratio"] for row in ratios(Case("lstm", (1, 1, 1)), spans)}
    assert rows == {(way, name): ratio for way in PASSES for name, ratio in (("ours bf16", 1.25), ("torch bf16", 1.0))}


def test_two_trees_are_timed_in_turns(tmp_path, monkeypatch, capsys):
    order = []

    class Recorded:
        def __init__(self, tree: Path, module: str):
            self.side = "old" if module == "elman.bench.recurrence" else "new"

        def ask(self, job: dict[str, Any], limit: float) -> dict[str, Any]:
            order.append((self.side, job["job"]))
            times = {"ours bf16": {"us": 2.0 if self.side == "old" else 3.0}}
            return {"verdict": "right"} if job["job"] == "check" else dict.fromkeys(PASSES, times)

        def close(self) -> None: ...

    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(against, "worker", Recorded)
    monkeypatch.setattr("sys.argv", ["against", ".", "--module", "elman.bench.recurrence", "--only", "rnn 64x512x512"])
    against.main()
    assert [side for side, job in order if job == "clock"] == ["old", "new", "new", "old"]
    assert {side for side, job in order if job == "check"} == {"old", "new"}
    assert "ours: new / old 1.500 to 1.500, median 1.500, 2 rows" in capsys.readouterr().out
    assert json.loads((tmp_path / "recurrence.json").read_text())["results"]["rounds"] == list(against.ROUNDS)
