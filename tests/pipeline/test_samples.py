"""Samples while a model learns: in the run folder, as reports, for trackers; training does not notice them."""

import sys
from types import SimpleNamespace

import pytest
import torch
from whole_runs import run

import elman
from elman.errors import CheckpointError, ElmanError
from elman.pipeline import iterate
from elman.pipeline.evaluate import evaluate_run
from elman.pipeline.samples import APART, FIRST, Samples
from elman.pipeline.tracking import TensorBoard, Wandb
from elman.runs import Run


@pytest.fixture
def play(folder, recipe):
    (folder / "text.txt").write_text("".join(f"MAN {n % 7}:\nthe cat sat.\n\n" for n in range(90)))
    recipe["data"] = {"train": "text.txt"}
    recipe["training"] |= {"evaluate_every": 2, "max_steps": 10}
    return recipe


@pytest.mark.slow
def test_a_validation_writes_a_sample_with_its_line_breaks(folder, play):
    reports = run(play)
    samples = {report.step: report.values["texts"] for report in reports if report.kind == "sample"}
    validations = [report.step for report in reports if report.kind == "validation"]
    assert [*samples] == validations == [2, 4, 6, 8, 10]
    for step in validations[:-1]:  # at the last step are the final ones
        assert (folder / f"run/samples/step-{step:08d}.txt").read_text() == "\n---\n".join(samples[step])
    assert any("\n" in text for texts in samples.values() for text in texts)
    kinds = [report.kind for report in reports]
    assert all(kinds[place - 1] == "validation" for place, kind in enumerate(kinds) if kind == "sample")


@pytest.mark.slow
@pytest.mark.parametrize("averaging", ["none", "moving"])
def test_training_is_the_same_without_them(folder, play, monkeypatch, averaging):
    """Catches a sample that draws from torch's random numbers, or leaves the model in evaluation mode."""
    play["training"] |= {"averaging": averaging}
    play["model"]["dropout"] = 0.3
    run(play, "with")
    state = torch.random.get_rng_state()
    monkeypatch.setattr(Samples, "due", lambda self, step: False)
    run(play, "without")
    assert torch.equal(state, torch.random.get_rng_state())
    one, other = (Run(folder / name).last.load() for name in ("with", "without"))
    for ours, theirs in ((one.weights, other.weights), (one.training, other.training)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_sample_that_fails_stops_nothing(folder, play, monkeypatch):
    def broken(*_, **__):
        raise ElmanError("invalid logits")

    monkeypatch.setattr("elman.pipeline.tasks.language_model.task.generate", broken)
    kinds = []
    with pytest.raises(ElmanError, match="invalid"):  # by the final samples only
        kinds += [report.kind for report in iterate(play, run="run") if not kinds.append(report.kind)]
    assert "sample" not in kinds
    assert kinds.count("validation") == 5


def test_late_samples_are_apart(tmp_path):
    samples = Samples(tmp_path)
    taken = []
    for step in range(10, 1000, 10):
        if samples.due(step):
            samples.add(step, ["a\nb"])
            taken.append(step)
            assert samples.due(step)  # again after a resume
            assert samples.pop() == ["a\nb"] != samples.pop()
    assert taken == [*range(10, 10 * FIRST + 1, 10), *range(10 * FIRST + APART, 1000, APART)]


@pytest.mark.slow
def test_trackers_get_text_and_histograms(folder, play, monkeypatch):
    calls = []
    session = SimpleNamespace(log=lambda values, step: calls.append((step, values)), finish=lambda: None)
    library = SimpleNamespace(init=lambda **_: session, Html=str, Histogram=lambda values: values.size)
    monkeypatch.setitem(sys.modules, "wandb", library)
    listeners = [Wandb(folder / "run", elman.read_recipe(play))]
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    listeners.append(TensorBoard(folder / "run"))
    reports = list(iterate(play, run="run", listeners=listeners))
    texts = {report.step: report.values["texts"][0] for report in reports if report.kind == "sample"}
    shown = {step: values for step, values in calls if "samples" in values}
    assert shown.keys() == texts.keys()
    assert shown[2]["samples"] == f"<pre>{texts[2]}</pre>"
    assert shown[2]["weights/embedding.weight"] > 0
    events = board.EventAccumulator(str(folder / "run" / "tensorboard"), size_guidance={"histograms": 0})
    events.Reload()
    assert [event.step for event in events.Tensors("samples/text_summary")] == [*texts]
    written = events.Tensors("samples/text_summary")[0].tensor_proto.string_val[0].decode()
    assert written.splitlines() == ["    " + line if line else line for line in texts[2].splitlines()]
    assert len(events.Histograms("weights/embedding.weight")) == len(texts)


@pytest.mark.slow
def test_a_checkpoint_of_a_run_can_be_loaded_by_itself(folder, play):
    play["training"] |= {"save_every": 2}
    run(play)
    older, newer = sorted((folder / "run" / "last").glob("step-*"))
    assert elman.load(newer).step == 10
    model = elman.load(older)
    assert model.step == 8
    assert model.generate(max_tokens=5, seed=1)
    assert evaluate_run(older)["loss"] != evaluate_run(newer)["loss"]
    file = older / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match="SHA-256"):  # no other one in its place
        elman.load(older)
    with pytest.raises(CheckpointError, match="No such file"):
        elman.load(older.with_name("step-00000005"))
