"""Whole sweeps, small ones: the same best however they are interrupted and on any number of workers."""

import json
import math
import signal
import subprocess
import sys

import pytest
from conftest import LANGUAGE
from processes import HANG, environment, wait_for
from test_races import _page_stands_alone

import elman
from elman.comparison.sweep_report import headline, write_sweep_report
from elman.comparison.sweep_results import gather_sweep
from elman.comparison.sweep_run import Sweep, SweepRun, read_sweep
from elman.errors import ConfigError, ElmanError, RunError
from elman.pipeline import train
from elman.training import TrainingConfig
from elman.training.early_stopping import EarlyStopping

RECIPE = {
    "device": "cpu",
    "data": {"language": LANGUAGE | {"words_per_class": 3}},
    "model": {"pattern": ["rnn"], "hidden_size": 8},
    "training": {"batch_size": 8, "max_steps": 12, "evaluate_every": 2},
    "generation": {"max_tokens": 5},
}
SETTINGS = {"training.learning_rate": "log(1e-4,1e-1)", "model.dropout": "0,0.3"}
SMALL = {"settings": SETTINGS, "trials": 7, "search": "random", "concurrent": 2, "recipe": RECIPE}


def run(folder, **options):
    changes = {key: options.pop(key) for key in (*Sweep.model_fields,) if key in options}
    running = SweepRun(Sweep.make({**SMALL, **changes}), folder, **{"workers": 2, **options})
    list(running.events())
    return running


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep that nothing has interrupted."""
    return run(tmp_path_factory.mktemp("sweep") / "sweep")


def outcomes(running):
    return [(one.settings, running.results[one.number]) for one in running.trials]


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
def test_a_sweep_from_start_to_report(swept, tmp_path):
    found = gather_sweep(swept)
    assert [row["trial"] for row in found.rows] == list(range(1, 8))
    assert {row["outcome"] for row in found.rows} == {"complete", "pruned"}
    complete = [row["score"] for row in found.rows if row["outcome"] == "complete"]
    assert found.best["score"] == min(complete) == found.ranked[0]["score"]
    for row in found.rows:
        assert row["steps"] < 12 if row["outcome"] == "pruned" else row["steps"] == 12
    assert next(iter(found.importance)) == "training.learning_rate"
    page = write_sweep_report(found, swept, ["sweep", "r.yaml"]).read_text()
    _page_stands_alone(page)
    for text in ("Importance of settings", "Parallel coordinates", "History of the best", "elman sweep r.yaml"):
        assert text in page
    assert f"{found.best['settings']['training.learning_rate']:g}" in headline(found, swept)
    *_, last = train(swept.folder / "best.yaml", run=tmp_path / "again")
    assert last.values["valid"]["loss"] == found.best["score"]
    assert last.values["test"]["loss"] == found.best["test"]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_best(swept, tmp_path):
    """Killed with trainings in progress, whose processes still save when it is resumed; and on one worker instead of
    two. Catches proposals from whatever has ended, and locks that are still held."""
    (tmp_path / "sweep.yaml").write_text(json.dumps(SMALL))  # JSON is YAML
    words = ["sweep", "sweep.yaml", "--run", "sweep", "--resume", "--workers", "2"]
    code = f"from elman.cli.main import main\nmain({words!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "sweep" / "trial-005" / "metrics.jsonl").exists, process)
    process.send_signal(signal.SIGKILL)
    process.wait(HANG)
    again = run(tmp_path / "sweep", resume=True, workers=1)
    assert outcomes(again) == outcomes(swept)
    assert again.best.settings == swept.best.settings


@pytest.mark.slow
def test_a_finished_sweep_is_not_run_again_and_more_trials_only_add(tmp_path):
    first = run(tmp_path / "sweep", trials=2)
    with pytest.raises(RunError, match="holds a sweep already; continue it with --resume"):
        run(tmp_path / "sweep", trials=2)
    with pytest.raises(ConfigError, match="a resumed sweep keeps its settings, but prune was 'median'"):
        run(tmp_path / "sweep", trials=2, prune="none", resume=True)
    more = run(tmp_path / "sweep", trials=3, resume=True)
    assert outcomes(more)[:2] == outcomes(first)
    assert len(more.results) == 3
    assert read_sweep(tmp_path / "sweep").trials == 3


@pytest.mark.slow
def test_trials_that_fail_are_reported_and_higher_accuracy_is_better(labelled, tmp_path):
    data = {"train": str(labelled), "valid_fraction": 0.3}
    training = {"batch_size": 8, "max_steps": 8, "evaluate_every": 4, "non_finite": "stop", "clip_grad_norm": 0}
    recipe = {"device": "cpu", "task": "classify", "data": data, "training": training}
    settings = {"training.learning_rate": [1e-9, 0.03, 1e30]}
    found = elman.sweep(recipe, settings, run=tmp_path / "sweep", workers=2, measure="accuracy")
    assert found.measure.key == "accuracy"
    assert found.best["score"] == max(row["score"] for row in found.rows if row["score"] is not None)
    assert found.best["settings"] == {"training.learning_rate": 0.03}
    failed = [row for row in found.rows if row["outcome"] == "failed"]
    assert [row["settings"]["training.learning_rate"] for row in failed] == [1e30]
    assert "not finite" in failed[0]["failure"] or "non-finite" in failed[0]["failure"]
    assert "trial 3" in (tmp_path / "sweep" / "report.html").read_text()


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


def test_a_grid_is_taken_where_it_is_small_and_refused_where_it_is_endless(tmp_path):
    small = SweepRun(Sweep.make({**SMALL, "settings": {"model.dropout": "0,0.3"}, "search": "auto"}), tmp_path / "a")
    assert small.sweep.search == "grid"
    with pytest.raises(ConfigError, match="a grid has no intervals"):
        SweepRun(Sweep.make({**SMALL, "search": "grid"}), tmp_path / "b")
    with pytest.raises(ConfigError, match="--measure bleu: task language-model has loss"):
        SweepRun(Sweep.make({**SMALL, "measure": "bleu"}), tmp_path / "c")
    assert math.isfinite(small.sweep.concurrent)
