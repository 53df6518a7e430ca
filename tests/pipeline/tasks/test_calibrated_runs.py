"""A classifier whose probabilities were fitted to the validation split after training."""

import json

import pytest
from task_data import settings_of

from elman.errors import ConfigError
from elman.pipeline import iterate, load
from elman.pipeline.evaluate import evaluate_run

# Bags of random words: what is learnt by heart is worth nothing, so that probabilities are far too high.
BAG = {"model.pattern": [], "model.pooling": "mean", "training.max_epochs": 20, "training.learning_rate": 0.1}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """Labels of which a third are wrong."""
    folder = tmp_path_factory.mktemp("noisy")
    paths = {}
    for shift, (split, count) in enumerate({"train": 120, "valid": 400, "test": 400}.items()):
        rows = (f"{(n % 2) ^ ((n * 7 + shift) % 3 == 0)}\tword{n % 2} rare{n % 60} \n" for n in range(count))
        paths[split] = str(folder / f"{split}.tsv")
        (folder / f"{split}.tsv").write_text("label\ttext\n" + "".join(rows))
    return {"classify": paths}


@pytest.mark.slow
def test_calibration_lowers_the_loss_and_keeps_the_answers(noisy, tmp_path):
    """Of held-out texts; all that reads the run is calibrated, and it is calibrated once."""
    settings = settings_of("classify", noisy, **BAG)
    for name, calibrate in (("plain", False), ("fitted", True)):
        for _ in iterate(overrides={**settings, "evaluation.calibrate": calibrate}, run=tmp_path / name):
            pass
    plain, fitted = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("plain", "fitted"))
    told = fitted["calibration"]
    assert told["temperature"] > 1.2
    for score in ("loss", "calibration_error"):
        assert told["before"][score] == pytest.approx(plain["valid"][score])
        assert told["after"][score] == fitted["valid"][score] < told["before"][score]
        assert fitted["test"][score] < plain["test"][score]
    assert fitted["test"]["accuracy"] == plain["test"]["accuracy"]
    note = f"valid: calibrated with temperature {told['temperature']:.3f}: loss {told['before']['loss']:.4f} before, "
    assert any(one.startswith(note) for one in fitted["notes"])
    assert evaluate_run(tmp_path / "fitted")["loss"] == pytest.approx(fitted["test"]["loss"])
    before, after = (load(tmp_path / name, "cpu").predict("word0 rare0")["probability"] for name in ("plain", "fitted"))
    assert 0.5 <= after < before
    for _ in iterate(run=tmp_path / "fitted", resume=True):
        pass
    assert json.loads((tmp_path / "fitted" / "results.json").read_text())["calibration"] == told


def test_only_classifiers_with_validation_data_are_calibrated(noisy, data, tmp_path):
    with pytest.raises(ConfigError, match="goes with classifiers, not with task tag"):
        next(iterate(overrides=settings_of("tag", data, **{"evaluation.calibrate": True}), run=tmp_path / "run"))
    settings = {"data.valid": None, "data.valid_fraction": 0, "evaluation.calibrate": True}
    with pytest.raises(ConfigError, match="needs validation data"):
        next(iterate(overrides=settings_of("classify", noisy, **BAG) | settings, run=tmp_path / "run"))
