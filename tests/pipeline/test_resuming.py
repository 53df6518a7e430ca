"""A run is stopped, changed, damaged or contested, and goes on exactly or refuses with a reason."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
import yaml
from processes import HANG, environment, forked_python, run_forked, wait_for
from whole_runs import at_step, left, notes, run

import elman
from elman.errors import ConfigError, DataError, RunError, TrainingError
from elman.pipeline.resume import agreed
from elman.processes import STOP_SIGNALS
from elman.runs import CheckpointFolder, Run


@pytest.mark.slow
def test_a_run_broken_off_goes_on_to_the_same_bits(folder, recipe):
    run(recipe, "peaceful")
    run(recipe, until=at_step(8))
    assert "going on after step 8" in notes(run(recipe))
    assert left(folder / "run") == left(folder / "peaceful")


@pytest.mark.slow
def test_a_run_broken_off_before_any_of_its_saves_goes_on_to_the_same_bits(folder, recipe, monkeypatch):
    """Catches the best saved after the last: the best of all may then be lost."""
    recipe["training"] |= {"max_steps": 10, "evaluate_every": 2, "save_every": 2}
    count, save = 0, CheckpointFolder.save

    def breaking(self, checkpoint):
        nonlocal count
        count += 1
        if count == at:
            raise SystemExit
        return save(self, checkpoint)

    monkeypatch.setattr(CheckpointFolder, "save", breaking)
    at = 0
    run(recipe, "peaceful")
    saves = count
    assert saves > 8
    for at in range(1, saves + 1):
        count = 0
        with pytest.raises(SystemExit):
            run(recipe, f"run{at}")
        run(recipe, f"run{at}")
        assert left(folder / f"run{at}") == left(folder / "peaceful")


@pytest.fixture(autouse=True)
def default_hangup():
    """SIGHUP as in a terminal, also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], 2 * [signal.SIGHUP]])
def test_a_signal_ends_a_run_in_order_and_it_goes_on_to_the_same_bits(folder, recipe, numbers):
    """A terminal that closes may send SIGHUP twice: as the shell ends, and itself."""
    recipe["training"]["save_every"] = 0
    run(recipe, "peaceful")
    reports = run(recipe, signals={"validation": numbers})
    assert reports[-1].kind == "end"
    assert reports[-1].values["reason"].startswith("interrupted")
    assert Run("run").last.load().step == 5
    run(recipe)
    assert left(folder / "run") == left(folder / "peaceful")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_under_torchrun_a_second_signal_does_not_cost_the_checkpoint(folder, recipe, monkeypatch):
    monkeypatch.setattr("elman.pipeline.session.under_torchrun", lambda: True)
    run(recipe, signals={"validation": 2 * [signal.SIGINT]})
    assert Run("run").last.load().step == 5


@pytest.fixture
def signal_while_saving(monkeypatch):
    """SIGINT comes while the first checkpoint is written."""
    save = CheckpointFolder.save

    def interrupted(self, checkpoint):
        monkeypatch.setattr(CheckpointFolder, "save", save)
        signal.raise_signal(signal.SIGINT)
        return save(self, checkpoint)

    monkeypatch.setattr(CheckpointFolder, "save", interrupted)


@pytest.mark.slow
def test_a_signal_while_the_last_checkpoint_is_saved_does_not_cost_it(folder, recipe, signal_while_saving):
    recipe["training"] |= {"max_steps": 3, "save_every": 0}
    assert run(recipe)[-1].values["reason"].startswith("interrupted")
    assert Run("run").last.load().step == 3
    assert run(recipe)[-1].kind == "result"


@pytest.mark.slow
def test_under_torchrun_a_late_signal_does_not_cost_the_checkpoint(folder, recipe, monkeypatch, signal_while_saving):
    """All processes stop as soon as one is asked to; the signals of others may come while they save or end."""
    monkeypatch.setattr("elman.pipeline.session.under_torchrun", lambda: True)
    monkeypatch.setattr("elman.training.distributed.World.any", lambda world, flag: True)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        reports = run(recipe, signals={"end": [signal.SIGINT]})
        signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert reports[-1].values["reason"].startswith("interrupted")
    assert Run("run").last.load().step == 1


def test_under_nohup_a_hangup_is_ignored(folder, recipe, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(recipe, signals={"step": [signal.SIGHUP]})[-1].kind == "result"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_run_whose_terminal_closes_is_saved(folder, recipe):
    """Catches: killed by SIGHUP; or saving nothing because progress can no longer be written."""
    recipe["training"] |= {"max_epochs": 10_000, "save_every": 0, "save_minutes": 60, "evaluate_every": 0}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    words = ["elman", "train", "recipe.json", "--run", "run"]
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, "-m", *words], environment())
    metrics = folder / "run" / "metrics.jsonl"
    wait_for(lambda: os.read(terminal, 4096) and metrics.exists() and metrics.stat().st_size)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert Run("run").last.load().step > 0


ORPHAN = """
import os, sys, time
from pathlib import Path
os.environ["WORLD_SIZE"] = "1"  # as under torchrun
if os.fork() == 0:
    from elman.cli.main import main
    main(["train", "recipe.json", "--run", "run"])
while not (Path("run/metrics.jsonl").exists() and Path("run/metrics.jsonl").stat().st_size):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_run_whose_parent_is_killed_is_saved_and_ends(folder, recipe):
    """As a worker of torchrun whose agent is killed. Catches: it trains on, and holds the lock."""
    recipe["training"] |= {"max_epochs": 10_000, "save_every": 0, "save_minutes": 60, "evaluate_every": 0}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    run_forked("-c", ORPHAN, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, capture_output=False)
    wait_for(lambda: is_free(Run("run")))
    assert Run("run").last.load().step > 0


def is_free(run):
    with suppress(RunError), run.lock():
        return True
    return False


def test_a_second_interrupt_stops_at_once(folder, recipe):
    with pytest.raises(KeyboardInterrupt):
        run(recipe, signals={"step": [signal.SIGINT, signal.SIGINT]})


@pytest.mark.slow
def test_an_interrupt_after_training_is_not_swallowed(folder, recipe):
    with pytest.raises(KeyboardInterrupt):
        run(recipe, signals={"end": [signal.SIGINT]})
    run(recipe)
    assert (folder / "run" / "results.json").exists()


@pytest.mark.slow
def test_the_command_line_ends_with_130_and_says_how_to_go_on(folder, recipe):
    recipe["training"]["max_epochs"] = 10_000
    (folder / "recipe.json").write_text(json.dumps(recipe))
    command = [*forked_python(), "-m", "elman", "train", "recipe.json", "--run", "run"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) as job:
        metrics = folder / "run" / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, job)
        job.send_signal(signal.SIGINT)
        _, told = job.communicate(timeout=HANG)
    assert job.returncode == 130
    assert "continue with: elman train --run run --resume" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_finished_run_can_be_resumed_and_stays_as_it_is(folder, recipe):
    first = run(recipe)[-1].values
    before = left(folder / "run")
    reports = run(recipe)
    assert reports[-1].kind == "result"
    assert {**reports[-1].values, "tokens_per_second": None} == {**first, "tokens_per_second": None}
    assert left(folder / "run") == before


@pytest.mark.slow
def test_resuming_needs_no_recipe_and_may_raise_the_limit(folder, recipe):
    run(recipe, until=at_step(8))
    reports = run(None, **{"training.max_epochs": 2})
    assert reports[-1].kind == "result"
    assert elman.read_recipe(folder / "run" / "config.yaml").training.max_epochs == 2
    assert Run("run").last.load().facts["trainer"]["epoch"] == 2


@pytest.mark.slow
def test_resuming_what_is_not_there_begins_it(folder, recipe):
    assert run(recipe, resume=True)[-1].kind == "result"


def test_a_changed_setting_is_refused_by_name(folder, recipe):
    run(recipe, until=at_step(4))
    with pytest.raises(ConfigError, match=r"training\.learning_rate was 0\.01, now 0\.1; leave them out"):
        run(recipe, **{"training.learning_rate": 0.1})
    with pytest.raises(ConfigError, match=r"model\.hidden_size was 12, now 16"):
        run(None, **{"model.hidden_size": 16})


@pytest.mark.slow
def test_the_rate_and_the_warm_up_that_were_chosen_are_written_and_kept(folder, recipe, monkeypatch):
    """Catches nothing written, where another version's choice was taken. Old runs, that left them open,
    choose once more."""
    from elman.training import learning_rates

    recipe["model"] = {"type": "mamba", "hidden_size": 16}
    run(recipe, until=at_step(4))
    training = elman.read_recipe(folder / "run" / "config.yaml").training
    assert None not in (training.learning_rate, training.warmup_steps)
    monkeypatch.setattr(learning_rates, "DEFAULT_LEARNING_RATE", 1e-5)
    for again in (recipe, None):  # the same words, which leave the rate open, and none at all
        run(again, until=at_step(4))
        assert elman.read_recipe(folder / "run" / "config.yaml").training == training
    path = folder / "run" / "config.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["training"] |= {"learning_rate": None, "warmup_steps": None}
    path.write_text(yaml.safe_dump(settings))
    Run("run").manifest.accept()
    assert run(None)[-1].kind == "result"
    assert elman.read_recipe(path).training.learning_rate == 1e-5


def test_a_size_that_was_solved_for_is_no_change():
    asked = elman.read_recipe({"parameters": "20k", "name": "yes"})
    stored = elman.read_recipe(asked, {"model.hidden_size": 48})
    assert agreed(stored, asked).plain() == stored.plain()
    assert agreed(stored, elman.read_recipe(asked, {"name": "'2024'"})).name == "2024"


@pytest.mark.slow
@pytest.mark.parametrize("cache", [True, False], ids=["tokens kept", "tokens gone"])
def test_changed_data_is_refused(folder, recipe, cache):
    run(recipe, until=at_step(4))
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text(text.replace("cat", "dog", 1))
    if not cache:
        for file in (folder / "run" / "data").iterdir():
            file.unlink()
    with pytest.raises(DataError, match="the data has changed since the run began"):
        run(recipe)
    (folder / "text.txt").write_text(text)
    if cache:
        assert run(recipe)[-1].kind == "result"


@pytest.mark.slow
def test_a_second_trainer_is_told_who_holds_the_run(folder, recipe):
    first = elman.iterate(recipe, run="run")
    next(first)
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        run(recipe)
    first.close()
    assert run(recipe)[-1].kind == "result"


@pytest.mark.slow
def test_a_flipped_bit_costs_one_checkpoint_and_nothing_else(folder, recipe, capsys):
    from elman.cli.main import main

    run(recipe, "peaceful")
    run(recipe, until=at_step(12))
    newest = Run("run").last.newest()
    file = newest / "training.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(SystemExit) as end:
        main(["train", "--run", "run", "--resume"])
    assert not end.value.code
    told = " ".join(capsys.readouterr().err.split())
    assert "newer ones are damaged" in told
    assert "going on after step 8" in told
    assert left(folder / "run") == left(folder / "peaceful")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_warned_of_once(folder, recipe):
    """Catches: two looks whether there is a checkpoint that read and judged all of them, as the load then did again."""
    run(recipe)
    best = Run("run").best
    last = best.load()
    best.save(replace(last, step=last.step + 1))
    (best.newest() / "facts.json").write_text("{}")
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        elman.load("run", "cpu")
    assert [str(one.message).count("newer ones are damaged") for one in noticed] == [1]


@pytest.mark.slow
def test_no_number_that_is_not_finite_reaches_a_checkpoint(folder, recipe, monkeypatch):
    """Skipped updates leave finite weights, and a run that cannot go on keeps its last checkpoint."""
    from elman.models import LanguageModel

    total_loss, calls = LanguageModel.total_loss, []

    def sometimes_nan(self, *arguments):
        total, state = total_loss(self, *arguments)
        calls.append(total)
        return (total * torch.nan if len(calls) in (9, 10) or len(calls) > 24 else total), state

    recipe["training"] |= {"save_every": 1, "max_epochs": 3, "log_every": 1}
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "total_loss", sometimes_nan)
        with pytest.raises(TrainingError, match="non-finite loss or gradient 3 times in a row"):
            run(recipe)
    checkpoint = Run("run").last.load()
    assert checkpoint.step >= 12
    for tensors in (checkpoint.weights, checkpoint.training):
        assert all(torch.isfinite(value.double()).all() for value in tensors.values())
    assert run(recipe)[-1].kind == "result"


def test_a_validation_that_is_not_finite_is_no_improvement_and_can_be_saved(folder, recipe, monkeypatch):
    from elman.pipeline.session import Session

    monkeypatch.setattr(Session, "_validate", lambda self: float("nan"))
    reports = run(recipe, until=at_step(8))
    assert not any(report.values["improved"] for report in reports if report.kind == "validation")
    assert Run("run").last.load().facts["trainer"]["judge"]["history"] == [None]


@pytest.mark.slow
def test_a_failed_beginning_leaves_nothing_in_the_way(folder, recipe):
    broken = {**recipe, "data": {"train": "texd.txt"}}
    with pytest.raises(DataError, match=r"no such file or folder \(did you mean 'text.txt'\?\)"):
        run(broken)
    assert not (folder / "run").exists()
    assert run(recipe)[-1].kind == "result"


@pytest.mark.slow
def test_training_works_outside_the_main_thread(folder, recipe):
    done = []
    thread = threading.Thread(target=lambda: done.extend(run(recipe)))
    thread.start()
    thread.join()
    assert done[-1].kind == "result"


@pytest.mark.slow
def test_a_run_goes_on_with_the_equations_it_began_with(folder, recipe, monkeypatch):
    """Catches: a resumed run whose cell had become another."""
    code = {"mine.py": "before"}
    monkeypatch.setattr("elman.pipeline.session.sources", lambda model: code)
    run(recipe, until=at_step(8))
    code = {"mine.py": "after"}
    with pytest.raises(ConfigError, match=r"mine\.py: not the same as when the run began"):
        run(recipe)
    code = {"mine.py": "before", "new.py": "other"}
    assert "going on after step 8" in notes(run(recipe))
