"""The Python of the README: train, load, speak, score, look inside; and whoever listens while it trains."""

import json
import math
import signal
import sys

import pytest
import torch
from whole_runs import run

import elman
from elman.errors import ConfigError, DataError, MissingExtra, RecordingError, RunError
from elman.pipeline.tracking import TensorBoard, Wandb
from elman.runs import Run


@pytest.fixture
def model(folder, recipe):
    run(recipe, "runs/gru")
    return elman.load("runs/gru")


@pytest.mark.slow
def test_everything_in_the_readme_works(folder, model):
    text = model.generate("the cat", max_tokens=20, temperature=0.8, seed=1)
    assert text == "".join(model.stream("the cat", max_tokens=20, temperature=0.8, seed=1))
    assert [one.text for one in model.generate_batch(["the cat"], max_tokens=20, temperature=0.8, seed=1)] == [text]
    score = model.score("the cat sat")
    assert score.bits_per_byte > 0
    many = list(model.score(["a dog", "the cat sat"]))
    assert many[1].log_prob == pytest.approx(score.log_prob, abs=1e-4)
    trace = model.trace("the cat", sites=["layers.0.gru.gate.*"])
    assert len(trace.tokens) == 8  # <eos> begins
    assert trace["layers.0.gru.gate.update"].shape == (8, 12)
    assert set(trace) == {"layers.0.gru.gate.update", "layers.0.gru.gate.reset"}
    assert isinstance(model.model, torch.nn.Module)


@pytest.mark.slow
def test_training_reports_what_the_readme_prints(folder, recipe):
    losses = [report.values["valid_loss"] for report in run(recipe) if report.kind == "validation"]
    assert losses
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_one_looks_inside_and_changes_what_passes(model):
    sites = model.sites()
    assert sites["layers.0.gru.hidden"] == (12,)
    with model.record("layers.0.gru.hidden") as seen:
        before = model.score("the cat").log_prob
    assert "layers.0.gru.hidden" in list(seen)
    with model.edit({"layers.0.gru.gate.update": 0.0}):
        changed = model.score("the cat").log_prob
    assert changed != before
    assert model.score("the cat").log_prob == pytest.approx(before, abs=1e-4)
    with pytest.raises(RecordingError, match=r"was not recorded \(did you mean 'layers.0.gru.hidden'\?\)"):
        model.trace("a", sites=["layers.0.gru.hidden"])["layers.0.gru.hiden"]


@pytest.mark.slow
def test_a_model_says_what_happens_inside_while_it_reads(model):
    gates = model.gates("the cat")
    assert {site.rpartition(".")[2] for site in gates} == {"update", "reset"}
    assert gates["layers.0.gru.gate.update"].shape == (8, 12)
    found = model.predictions("the cat")
    end = -float(found["probability"][-1, model.tokenizer.eos_id].log())
    nats = float(found["surprisal"][:-1].sum()) * math.log(2) + end
    assert nats == pytest.approx(-model.score("the cat").log_prob, abs=1e-4)
    assert model.gradients("the cat")["gradient"].shape == (8, 8)
    assert model.units("the cat sat. " * 10)["layers.0.gru.hidden"].shape == (131, 12)
    with pytest.raises(ConfigError, match="no layer of this model has attention weights"):
        model.attention("the cat")
    assert repr(model) == "<language-model model gru, 1,146 parameters, step 35, runs/gru>"
    assert "stack.layers.0.layer  gru" in str(model.summary())


@pytest.mark.slow
def test_called_plainly_it_trains_and_returns_the_best_model_with_its_results(folder, recipe, capsys):
    """Catches a generator, which silently does nothing."""
    heard = []
    model = elman.train(recipe, run="run", listeners=[heard.append])
    *_, validation, _, result = [report for report in heard if report.kind in ("validation", "end", "result")]
    assert model.results == json.loads((folder / "run" / "results.json").read_text()) == result.values
    assert model.score("the cat").log_prob == elman.load("run").score("the cat").log_prob
    shown = capsys.readouterr()
    assert f"validation loss {validation.values['valid_loss']:.4f}" in shown.err
    assert not shown.out
    assert elman.train(run="run", resume=True, progress=False).results == model.results
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_an_interrupted_call_returns_no_half_trained_model(folder, recipe):
    stop = {"validation": lambda: signal.raise_signal(signal.SIGINT)}
    with pytest.raises(KeyboardInterrupt, match=r"continue with elman\.train\(run='run', resume=True\)"):
        elman.train(recipe, run="run", listeners=[lambda report: stop.get(report.kind, int)()], progress=False)
    assert elman.load("run").results == {}
    assert elman.train(run="run", resume=True).results["valid"]


@pytest.mark.slow
def test_a_validation_is_reported_after_its_checkpoint_is_saved(folder, recipe):
    """Catches: `elman.load` in the loop finds no checkpoint, or an older one, at a validation."""
    recipe["training"] |= {"save_every": 0, "save_minutes": 60, "evaluate_every": 3, "max_steps": 9}
    best, found = math.inf, []
    for report in elman.iterate(recipe, run="run"):
        if report.kind == "validation":
            best = min(best, report.values["valid_loss"])
            found.append(Run("run").load().facts["valid_loss"])
            assert found[-1] == best
    assert len(found) == 3


@pytest.mark.slow
def test_what_cannot_be_loaded_says_why(folder, recipe):
    with pytest.raises(RunError, match="no such run folder"):
        elman.load("nowhere")
    training = elman.iterate(recipe, run="early")
    next(training)
    with pytest.raises(RunError, match="has no checkpoint yet; train it first, or wait for its first save"):
        elman.load("early")
    training.close()
    with pytest.raises(ConfigError, match="none of auto, cpu, cuda, mps"):
        run(recipe) and elman.load("run", device="tpu")


@pytest.mark.slow
def test_a_model_is_what_its_run_reported(folder, model):
    """The best weights, and the same score as in the results, though the text is gone."""
    from elman.pipeline.evaluate import evaluate_run

    (folder / "text.txt").unlink()
    results = json.loads((folder / "runs" / "gru" / "results.json").read_text())
    found = evaluate_run("runs/gru", split="valid")
    assert found["loss"] == pytest.approx(results["valid"]["loss"], rel=1e-6)
    assert model.recipe.training.batch_size == 6
    tokens = folder / "runs" / "gru" / "data" / "valid.tokens"
    tokens.write_bytes(b"\xff" * tokens.stat().st_size)
    with pytest.raises(DataError, match=r"valid\.tokens: damaged: changed since it was written"):
        evaluate_run("runs/gru", split="valid")


@pytest.mark.slow
def test_a_listener_hears_what_is_yielded(folder, recipe):
    heard = []
    given = list(elman.iterate(recipe, run="run", listeners=[heard.append]))
    assert heard == given
    kinds = {"note", "start", "step", "validation", "sample", "save", "end", "result"}
    assert kinds == {report.kind for report in given}


@pytest.mark.slow
def test_tensorboard_gets_every_number_once_also_after_a_resume(folder, recipe):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for report in elman.iterate(recipe, run="run", listeners=[TensorBoard(folder / "run")]):
        if report.kind == "step" and report.step == 6:
            break  # after the save at step 4
    list(elman.iterate(recipe, run="run", resume=True, listeners=[TensorBoard(folder / "run")]))
    events = EventAccumulator(str(folder / "run" / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "valid_loss"):
        wanted = {line["step"]: line[name] for line in lines if name in line}
        assert [event.step for event in events.Scalars(name)] == list(wanted)
        assert {event.step: event.value for event in events.Scalars(name)} == pytest.approx(wanted)


@pytest.mark.parametrize(("package", "make"), [("wandb", Wandb), ("torch.utils.tensorboard", TensorBoard)])
def test_a_missing_tracker_names_its_extra(folder, recipe, monkeypatch, package, make):
    monkeypatch.setitem(sys.modules, package, None)
    arguments = (folder,) if make is TensorBoard else (folder, elman.read_recipe(recipe))
    with pytest.raises(MissingExtra, match=r"pip install 'elman\[tracking\]'"):
        make(*arguments)


@pytest.mark.slow
def test_wandb_is_begun_with_the_first_report_and_finished_with_the_last(folder, recipe, monkeypatch):
    from types import SimpleNamespace

    logged, calls = [], []
    session = SimpleNamespace(log=lambda values, step: logged.append(step), finish=lambda: calls.append("finish"))
    monkeypatch.setitem(
        sys.modules,
        "wandb",
        SimpleNamespace(init=lambda **settings: calls.append("init") or session, Html=str, Histogram=len),
    )
    tracker = Wandb(folder / "run", elman.read_recipe(recipe))
    assert calls == []
    reports = list(elman.iterate(recipe, run="run", listeners=[tracker]))
    assert calls == ["init", "finish"]
    assert logged == [report.step for report in reports if report.kind in ("step", "validation", "sample")]
