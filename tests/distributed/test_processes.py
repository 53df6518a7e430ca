"""Data-parallel training: two processes compute what one would, and a killed process changes no bit of the result.

The processes communicate by gloo over loopback.
"""

import random
import signal
import sys
from contextlib import suppress
from os import kill

import pytest
import torch
from launching import finish, launch, weights, workers
from processes import HANG, wait_for

import elman
from elman.runs import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes under /proc"),
    pytest.mark.xdist_group("torchrun"),  # each test starts two processes
]
MODEL = {"type": "lstm", "hidden_size": 8, "num_layers": 2}
TRAINING = {"sequence_length": 8, "max_steps": 40, "evaluate_every": 15, "save_every": 10, "optimizer": "sgd"}
TRAINING |= {"learning_rate": 0.5, "schedule": "cosine"}
STREAM = {
    "device": "cpu",
    "data": {"train": "text.txt", "boundary": "carry"},
    "tokenizer": "character",
    "model": MODEL,
    "training": {**TRAINING, "batch_size": 5, "micro_batches": 2},
}
DOCUMENTS = {
    **STREAM,
    "data": {"train": "text.txt", "document": "line", "boundary": "reset"},
    "training": {**TRAINING, "batch_size": 3, "max_epochs": 2},
}


@pytest.fixture
def folder(tmp_path):
    dice = random.Random(1)
    words = [["the", "cat", "saw", "a", "dog", "and", "ran"][dice.randrange(7)] for _ in range(1000)]
    lines = [" ".join(words[i : i + dice.randint(1, 6)]) for i in range(100)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("recipe", [STREAM, DOCUMENTS], ids=["stream", "documents"])
def test_two_processes_train_the_same_weights_as_one(folder, monkeypatch, recipe):
    """With documents, batches have three rows and the last chunks one, so that the second process has none.
    Seen to fail where each process divided by its own number of tokens."""
    job = launch(folder, recipe)
    monkeypatch.chdir(folder)
    elman.train(recipe, run="alone")
    finish(job, folder)
    together, alone = weights(folder / "run"), weights(folder / "alone")
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-6)
    assert (folder / "log.txt").read_text().count("ended:") == 1  # only one process logs


def test_after_killed_processes_a_job_restarts_and_ends_with_the_same_bits(folder):
    """First the second process is killed, then the first. Catches the random state not restored."""
    training = {**STREAM["training"], "max_steps": 0, "max_epochs": 6, "evaluate_every": 50, "save_every": 10}
    recipe = {**STREAM, "model": {**MODEL, "dropout": 0.3, "weight_dropout": 0.2}, "training": training}
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    (undisturbed / "text.txt").write_bytes((folder / "text.txt").read_bytes())
    finish(launch(undisturbed, recipe), undisturbed)
    job = launch(folder, recipe, "--resume", restarts=2)
    leader = None
    for rank, step in [(1, 20), (0, 60)]:
        leader = wait_for_step(job, Run(folder / "run"), step, leader)
        kill(workers(folder)[rank], signal.SIGKILL)
    finish(job, folder)
    assert (folder / "log.txt").read_text().count("going on after step") == 2
    expected, found = weights(undisturbed / "run"), weights(folder / "run")
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def wait_for_step(job, run, step, before):
    """Until that step is saved by another leader than the one before; returns the process id of the leader."""

    def leader():
        with suppress(OSError, ValueError):  # nothing saved yet, or the lock not written
            newest = max(path.name for path in run.last.folder.glob("step-*"))
            pid = int((run.folder / "lock").read_text())
            if int(newest.split("-")[1].split(".")[0]) >= step and pid != before:
                return pid
        return None

    return wait_for(leader, job)


def test_an_error_in_the_first_process_ends_all_processes(folder):
    """Long before the others would give up waiting for it, which takes torch half an hour. Nothing is forked here."""
    (folder / "run").mkdir()
    (folder / "run" / "thesis.txt").write_text("not a run")
    job = launch(folder, STREAM, forked=False)
    assert job.wait(timeout=HANG / 3) != 0
    assert "run: not empty (thesis.txt) and not a run" in (folder / "log.txt").read_text()


def test_on_sigterm_all_processes_stop_after_the_same_step_and_say_how_to_resume(folder):
    """SIGTERM reaches the processes at different steps."""
    training = {**STREAM["training"], "max_steps": 0, "max_epochs": 1000, "save_every": 0}
    job = launch(folder, {**STREAM, "training": training})
    run = Run(folder / "run")
    wait_for(lambda: run.metrics.exists() and run.metrics.stat().st_size, job)
    job.terminate()
    assert job.wait(timeout=HANG) != 0
    assert "elman train --run run --resume" in (folder / "log.txt").read_text()
    assert run.last.load().step > 0


ENDLESS = {**STREAM, "training": {**STREAM["training"], "max_steps": 0, "max_epochs": 10_000, "save_every": 0}}


def test_when_torchruns_agent_is_killed_all_processes_save_and_end(folder):
    """Catches: they train on, and hold the lock of the run. Their parent must be the agent, so nothing is forked."""
    job = launch(folder, ENDLESS, forked=False)
    run = Run(folder / "run")
    wait_for(lambda: run.metrics.exists() and run.metrics.stat().st_size, job)
    job.kill()
    wait_for(lambda: not workers(folder))
    with run.lock():
        assert run.last.load().step > 0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_does_not_wait_for_ever_for_a_stopped_process(folder, rank):
    run, log = Run(folder / "run"), folder / "log.txt"
    for seconds in (3, 30, 300):  # a busy machine may need more from one step to the next
        job = launch(folder, ENDLESS, "--resume", ELMAN_LIMITS=f"rank_seconds={seconds}", forked=rank == 0)
        wait_for(lambda job=job: job.poll() is not None or (run.metrics.exists() and run.metrics.stat().st_size))
        if job.poll() is None:
            break
    stopped = workers(folder)[1] if rank else int((run.folder / "lock").read_text())
    kill(stopped, signal.SIGSTOP)
    wait_for(lambda: "gave no answer in time" in log.read_text(), job)
    kill(stopped, signal.SIGKILL)  # as torchrun does after half a minute
    assert job.wait(timeout=HANG) != 0
