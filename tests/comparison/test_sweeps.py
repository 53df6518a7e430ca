"""Whole sweeps, small ones: the same best however they are interrupted and on any number of workers."""

import json
import math
import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import LANGUAGE
from processes import HANG, environment, wait_for
from test_races import _page_stands_alone
from typer.testing import CliRunner

import elman
from elman import files
from elman.cli.main import app
from elman.comparison.plan import Job
from elman.comparison.scheduler import WorkerPool
from elman.comparison.sweep_report import advice, headline, write_sweep_report
from elman.comparison.sweep_results import gather_sweep
from elman.comparison.sweep_run import Sweep, SweepRun, read_sweep
from elman.errors import ConfigError, ElmanError, RunError
from elman.pipeline import Recipe, iterate
from elman.runs import FileManifest
from elman.runs.lock import file_lock
from elman.training import TrainingConfig
from elman.training.early_stopping import EarlyStopping
from elman.untrusted import read_yaml

RECIPE = {
    "device": "cpu",
    "data": {"language": LANGUAGE | {"words_per_class": 3}},
    "model": {"pattern": ["rnn"], "hidden_size": 8},
    "training": {"batch_size": 8, "max_steps": 12, "evaluate_every": 2},
    "generation": {"max_tokens": 5},
}
SETTINGS = {"training.learning_rate": "log(1e-4,1e-1)", "model.dropout": "0,0.3"}
SMALL = {"settings": SETTINGS, "trials": 5, "search": "random", "concurrent": 2, "recipe": RECIPE}


def run(folder, **options):
    changes = {key: options.pop(key) for key in Sweep.model_fields if key in options}
    running = SweepRun(Sweep.make({**SMALL, **changes}), folder, **{"workers": 2, **options})
    list(running.events())
    return running


def outcomes(running):
    return [(one.settings, running.results[one.number]) for one in running.trials]


class Calculator:
    """A worker that computes what a training would come to, after a while; it refuses learning rates above a limit."""

    def __init__(self, seed=0, limit=1.0):
        self.dice, self.limit = random.Random(seed), limit

    def train(self, folder):
        time.sleep(self.dice.uniform(0, 0.02))
        recipe, steps = Recipe.make(read_yaml(folder / "config.yaml")), range(2, 14, 2)
        rate = recipe.training.learning_rate
        if rate > self.limit:
            (folder / "train.log").write_text("elman: the rate is too high\n")
            return {"code": 1}
        losses = [(math.log10(rate) + 2.5) ** 2 + recipe.model.dropout + 1 / step for step in steps]
        judge, kept = EarlyStopping(recipe.training), []
        for step, loss in zip(steps, losses, strict=True):
            judge.update(loss, step)
            kept.append({"kind": "validation", "step": step, "valid_loss": loss})
            if judge.missed:
                break
        (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
        scores = {"loss": judge.best, "perplexity": math.exp(judge.best)}
        results = {"parameters": 100, "valid": scores, "test": {"loss": judge.best + 0.1}}
        FileManifest(folder).write("results.json", json.dumps(results).encode())
        return {"code": 0}

    def interrupt(self, number=0): ...

    def close(self): ...


LONG = {"trials": 16, "concurrent": 4, "settings": {**SETTINGS, "model.hidden_size": "int(4,16)"}}


def calculated(folder, workers=2, seed=0, **options):
    if options.get("search") == "tpe":
        pytest.importorskip("optuna")
    return run(folder, **{**LONG, **options}, places=[Calculator(seed + n) for n in range(workers)])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep that nothing has interrupted."""
    return run(tmp_path_factory.mktemp("sweep") / "sweep")


def test_a_validation_that_misses_a_milestone_ends_training_also_after_resumption():
    """A milestone holds from its step on, for the best validation so far."""
    judge = EarlyStopping(TrainingConfig.make({"milestones": [[20, 2.0], [10, 3.0]]}))
    for step, loss in [(5, 9.0), (10, 2.9), (15, 5.0)]:
        judge.update(loss, step)
        assert judge.stop_reason is None
    judge.update(2.5, 20)
    assert "missed a milestone: 2.5, above 2 after 20 steps" in judge.stop_reason
    twin = EarlyStopping(judge.config)
    twin.restore(judge.facts())
    assert twin.stop_reason == judge.stop_reason


@pytest.mark.slow
@pytest.mark.parametrize(("search", "prune"), [("random", "halving"), ("tpe", "median")])
def test_workers_of_any_number_and_speed_find_the_same(search, prune, tmp_path):
    """Catches proposals and milestones from whatever has ended."""
    one = calculated(tmp_path / "one", 1, search=search, prune=prune)
    four = calculated(tmp_path / "four", 4, seed=9, search=search, prune=prune)
    assert outcomes(one) == outcomes(four)
    assert one.best == four.best._replace(job=one.best.job)
    assert any(result.pruned_at for result in one.results.values())


@pytest.mark.slow
@pytest.mark.parametrize(("search", "after"), [("random", 1), ("tpe", 12)])
def test_a_sweep_cut_anywhere_goes_on_to_the_same(search, after, tmp_path):
    whole = calculated(tmp_path / "whole", search=search)
    cut = SweepRun(whole.sweep, tmp_path / "cut", places=[Calculator(5), Calculator(6)])
    ended = (event for event in cut.events() if event.kind == "done")
    for _ in range(after):
        next(ended)
    del ended, cut
    gone_on = calculated(tmp_path / "cut", 3, search=search, resume=True)
    assert outcomes(gone_on) == outcomes(whole)


@pytest.mark.slow
def test_a_report_of_a_sweep_stands_alone_and_its_best_is_the_best(tmp_path):
    running = calculated(tmp_path / "sweep")
    found = gather_sweep(running)
    assert {row["outcome"] for row in found.rows} == {"complete", "pruned"}
    complete = [row["score"] for row in found.rows if row["outcome"] == "complete"]
    assert found.best["score"] == min(complete) == found.ranked[0]["score"]
    assert next(iter(found.importance)) == "training.learning_rate"
    page = write_sweep_report(found, running, ["sweep", "r.yaml"]).read_text()
    _page_stands_alone(page)
    for text in ("Importance of settings", "Parallel coordinates", "History of the best", "elman sweep r.yaml"):
        assert text in page
    assert f"{found.best['settings']['training.learning_rate']:g}" in headline(found, running)
    assert "matters most" in page
    few = found._replace(rows=found.rows[:3])
    assert "3 trials are too few to tell which setting matters." in advice(few, running)
    assert len((tmp_path / "sweep" / "results.jsonl").read_text().splitlines()) == 16


@pytest.mark.slow
def test_trials_that_fail_are_told_and_tried_again_on_resumption(tmp_path):
    settings = {"training.learning_rate": "1e-4,1e-2,0.5"}
    places = [Calculator(limit=0.1)]
    failing = run(tmp_path / "sweep", settings=settings, search="auto", places=places)
    assert failing.sweep.search == "grid"
    assert failing.failures == {3: "elman: the rate is too high"}
    found = gather_sweep(failing)
    assert [row["outcome"] for row in found.ranked] == ["complete", "complete", "failed"]
    again = run(tmp_path / "sweep", settings=settings, search="auto", places=[Calculator()], resume=True)
    assert again.failures == {}
    assert len(again.results) == 3


@pytest.mark.slow
def test_a_finished_sweep_is_not_run_again_and_more_trials_only_add(tmp_path):
    first = calculated(tmp_path / "sweep", trials=2)
    with pytest.raises(RunError, match="holds a sweep already; continue it with --resume"):
        calculated(tmp_path / "sweep", trials=2)
    with pytest.raises(ConfigError, match="a resumed sweep keeps its settings, but prune was 'median', now 'none'"):
        calculated(tmp_path / "sweep", trials=2, prune="none", resume=True)
    more = calculated(tmp_path / "sweep", trials=3, resume=True)
    assert outcomes(more)[:2] == outcomes(first)
    assert len(more.results) == 3
    assert read_sweep(tmp_path / "sweep").trials == 3


def test_a_folder_whose_creation_was_cut_off_is_taken(tmp_path):
    """The manifest is there before the settings that it lists. Catches: not empty and not a sweep."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    FileManifest(folder).write("sweep.yaml", b"trials: 5\n")
    (folder / "sweep.yaml").unlink()
    SweepRun(Sweep.make(SMALL), folder, resume=True, places=[Calculator()])
    assert read_sweep(folder).trials == 5
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("text")
    with pytest.raises(RunError, match="not empty and not a sweep"):
        SweepRun(Sweep.make(SMALL), tmp_path / "full", resume=True, places=[Calculator()])


def test_remains_of_crashes_are_removed_and_not_shared(tmp_path):
    """Catches: unfinished files of the shared data, which no lock covered, were linked into every trial."""
    folder = calculated(tmp_path / "sweep", trials=2).folder
    for place in (".", "prepared", "prepared/data", "plots", "trial-001", "trial-002/data"):
        (folder / place).mkdir(exist_ok=True)
        files.temporary_path(folder / place / "remains").touch()
    gather_sweep(calculated(folder, trials=3, resume=True))
    assert [*folder.rglob(f"{files.ASIDE}*")] == []


@pytest.mark.slow
def test_changed_proposals_are_refused_until_they_are_accepted(tmp_path):
    """Catches a folder that accept does not know."""
    calculated(tmp_path / "sweep", trials=2)
    path = tmp_path / "sweep" / "trials.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(RunError, match=r"trials.json: changed since it was written.*elman accept"):
        calculated(tmp_path / "sweep", trials=3, resume=True)
    assert CliRunner().invoke(app, ["accept", str(tmp_path / "sweep")]).exit_code == 0
    assert len(calculated(tmp_path / "sweep", trials=3, resume=True).results) == 3


@pytest.mark.slow
def test_the_best_recipe_trains_to_the_same_score(swept, tmp_path):
    best = gather_sweep(swept).best
    *_, last = iterate(swept.folder / "best.yaml", run=tmp_path / "again")
    assert (last.values["valid"]["loss"], last.values["test"]["loss"]) == (best["score"], best["test"])


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_best(swept, tmp_path):
    """Killed with trainings in progress, whose processes still save when it is resumed; and on one worker instead of
    two."""
    (tmp_path / "sweep.yaml").write_text(json.dumps(SMALL))  # JSON is YAML
    words = ["sweep", "sweep.yaml", "--run", "sweep", "--resume", "--workers", "2"]
    code = f"from elman.cli.main import main\nmain({words!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "sweep" / "trial-003" / "metrics.jsonl").exists, process)
    process.send_signal(signal.SIGKILL)
    process.wait(HANG)
    again = run(tmp_path / "sweep", resume=True, workers=1)
    assert again.failures == {}
    assert outcomes(again) == outcomes(swept)


@pytest.mark.slow
def test_a_training_waits_until_the_one_before_has_left_its_lock(tmp_path):
    """As when a killed sweep is resumed at once. Catches: in use by process …"""

    class Locking(Calculator):
        def train(self, folder):
            with file_lock(folder / "lock"):
                FileManifest(folder).write("results.json", b"{}")
            return {"code": 0}

    pool, job = WorkerPool([Locking()]), Job("trial", "1", tmp_path, None)
    with file_lock(tmp_path / "lock"):
        events = pool.run_jobs([job])
        assert next(events).kind in ("started", "look")
        assert not job.done
    assert [event.kind for event in events][-2:] == ["done", "look"]


@pytest.mark.slow
def test_higher_accuracy_is_better_and_python_gives_what_the_command_does(labelled, tmp_path):
    data = {"train": str(labelled), "valid_fraction": 0.3}
    training = {"batch_size": 8, "max_steps": 20, "evaluate_every": 10}
    recipe = {"device": "cpu", "task": "classify", "data": data, "training": training}
    settings = {"training.learning_rate": [1e-9, 0.03]}
    found = elman.sweep(recipe, settings, run=tmp_path / "sweep", workers=2)
    assert found.measure.key == "accuracy"
    assert found.best["settings"] == {"training.learning_rate": 0.03}
    assert found.rows[0]["score"] < found.rows[1]["score"]
    assert (tmp_path / "sweep" / "report.html").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"training.learnin_rate": "1,2"}, "unknown key 'learnin_rate' in section 'training' (did you mean"),
        ({"model.dropout": "0.1,1.5"}, "--set model.dropout: 1.5 cannot be tried"),
        ({"training.learning_rate": "uniform(0,1)"}, "--set training.learning_rate: 0.0 cannot be tried"),
    ],
)
def test_a_wrong_space_is_an_error_before_anything_is_written(settings, problem, tmp_path):
    with pytest.raises(ElmanError) as caught:
        run(tmp_path / "sweep", settings=settings)
    assert problem in str(caught.value)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_a_grid_is_taken_where_it_is_small_and_refused_where_it_is_endless(tmp_path):
    small = SweepRun(Sweep.make({**SMALL, "settings": {"model.dropout": "0,0.3"}, "search": "auto"}), tmp_path / "a")
    assert small.sweep.search == "grid"
    with pytest.raises(ConfigError, match="a grid has no intervals"):
        SweepRun(Sweep.make({**SMALL, "search": "grid"}), tmp_path / "b")
    with pytest.raises(ConfigError, match="--measure bleu: task language-model has loss"):
        SweepRun(Sweep.make({**SMALL, "measure": "bleu"}), tmp_path / "c")
    assert math.isfinite(small.sweep.concurrent)
