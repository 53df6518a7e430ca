"""Processes that die in any way are an outcome, not an accident."""

import os
import subprocess
import sys

import pytest
from processes import environment, forked_python, run_python, wait_for

from elman.comparison.workers import ForkingWorker, SpawningWorker, local_workers
from elman.pipeline import read_recipe, write_recipe
from elman.runs import Run


@pytest.mark.parametrize("code", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "print('x')"])
def test_a_worker_that_dies_is_an_ended_training_and_is_replaced(tmp_path, code):
    """Catches an empty answer read as JSON."""
    one = ForkingWorker({})
    one.command = [sys.executable, "-c", code]
    assert one.train(tmp_path)["code"] == 1
    first = one.worker.pid
    one.worker.wait()
    assert one.train(tmp_path)["code"] == 1
    assert one.worker.pid != first
    one.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers fork on Linux only")
def test_a_training_saves_and_ends_when_its_race_is_killed(tmp_path):
    """Which closes the worker's stdin. Catches: it trains on, and holds the lock of its run."""
    data = {"language": {"type": "brackets", "train_documents": 50, "valid_documents": 5, "test_documents": 5}}
    training = {"max_epochs": 10_000, "save_minutes": 60, "evaluate_every": 0}
    recipe = {"device": "cpu", "data": data, "model": {"type": "gru", "hidden_size": 4}, "training": training}
    run = Run.create(tmp_path / "run", write_recipe(read_recipe(recipe)), {})
    words = [*forked_python(), "-m", "elman.comparison.worker_process"]
    with subprocess.Popen(words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        worker.stdin.write(f"{run.folder}\n")
        worker.stdin.flush()
        assert int(worker.stdout.readline())
        wait_for(lambda: run.metrics.exists() and run.metrics.stat().st_size)
        worker.stdin.close()
        assert worker.wait() == 1
    with run.lock():
        assert run.last.load().step > 0


def test_a_process_tells_how_it_ended_and_what_it_took(tmp_path):
    one = SpawningWorker({"ELMAN_PLACE": "here"})
    one.command = [sys.executable, "-c", "import os, sys; sys.exit(os.environ['ELMAN_PLACE'] == 'here' and 3)"]
    ended = one.train(tmp_path)
    assert ended["code"] == 3
    assert ended["peak_bytes"] > 2**20
    assert one.process is None
    one.interrupt()  # nobody is there to hear it


def test_each_of_several_accelerators_is_seen_by_its_own_workers(monkeypatch):
    """Catches all workers on the first."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = [one.environment.get("CUDA_VISIBLE_DEVICES") for one in local_workers(4, accelerators=2)]
    assert seen == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    seen = [one.environment.get("CUDA_VISIBLE_DEVICES") for one in local_workers(2, accelerators=2)]
    assert seen == ["5", "7"]
    assert all(one.environment["OMP_NUM_THREADS"] == "1" for one in local_workers(1))
    assert "ELMAN_PLACE" not in os.environ


@pytest.mark.slow
def test_a_worker_hears_interrupts_also_where_its_parent_blocks_them():
    """As the threads of a Ray cluster do. Catches the mask left as it is inherited."""
    code = """
import signal
from elman.comparison import worker_process

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
worker_process.serve = lambda: print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
worker_process.main([])
"""
    ended = run_python("-c", code)
    assert ended.stdout == "0\n", ended.stderr
