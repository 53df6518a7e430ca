"""Numbers that mean nothing are refused: NaN outputs of every task, weights that are not finite, diverged training."""

import json

import pytest
import safetensors.torch
import torch
from whole_runs import notes, run

import elman
from elman.errors import CheckpointError, ConfigError, ElmanError
from elman.pipeline.evaluate import evaluate_run
from elman.runs.manifest import make_manifest

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "ran"]
LINES = [" ".join(WORDS[shift : shift + 5]) for shift in range(6)] * 4
SHORT = {"training": {"max_steps": 1}, "device": "cpu"}
SMALL = {"hidden_size": 8}
LAYERS = {"pattern": ["gru"], **SMALL}
TASKS = {
    "language-model": ({"model": LAYERS}, LINES),
    "masked": ({"model": SMALL}, LINES),
    "classify": ({"model": LAYERS}, [f"{'ab'[n % 2]}\t{line}" for n, line in enumerate(LINES)]),
    "multi-label": (
        {"task": "classify", "data": {"separator": ","}, "model": LAYERS},
        [f"{['a', 'a,b'][n % 2]}\t{line}" for n, line in enumerate(LINES)],
    ),
    "regress": ({"model": LAYERS}, [f"{n / 7}\t{line}" for n, line in enumerate(LINES)]),
    "tag": ({"model": LAYERS}, None),
    "tag-softmax": ({"task": "tag", "model": {**LAYERS, "head": "softmax"}}, None),
    "translate": ({"model": {"encoder": LAYERS, "decoder": SMALL}}, [f"{line}\t{line[::-1]}" for line in LINES]),
    "mask-predict": (
        {"task": "translate", "model": {"type": "mask-predict", "encoder": SMALL, "decoder": SMALL}},
        [f"{line}\t{line[::-1]}" for line in LINES],
    ),
}


def write(folder, lines):
    if lines is None:
        sentences = ("".join(f"{word} {'XY'[len(word) % 2]}\n" for word in line.split()) for line in LINES)
        (folder / "data.conll").write_text("\n".join(sentences))
        return str(folder / "data.conll")
    (folder / "data.tsv" if "\t" in lines[0] else folder / "data.txt").write_text("\n".join(lines) + "\n")
    return str(folder / "data.tsv" if "\t" in lines[0] else folder / "data.txt")


@pytest.fixture(scope="module", params=TASKS)
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    settings, lines = TASKS[request.param]
    data = write(folder, lines)
    recipe = {"task": request.param, **SHORT, **settings, "data": {"train": data, **settings.get("data", {})}}
    run(recipe, folder=folder / "run")
    return elman.load(folder / "run", "cpu"), data


@pytest.fixture
def broken(trained, monkeypatch):
    """A model whose weights are finite no more since it was loaded."""
    model, data = trained
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.fill_(torch.nan)
    monkeypatch.setattr("elman.pipeline.evaluate.load", lambda *_: model)
    yield model, data
    model.model.load_state_dict(before)


@pytest.mark.slow
def test_nan_outputs_are_no_answers_and_no_scores(broken):
    """Catches: the first label as the answer; a loss and an accuracy from NaN."""
    model, data = broken
    text = "the <mask> sat" if model.task.name == "masked" else "the cat sat"
    asked = [lambda: model.predict(text), lambda: model.reading(text).scores()]
    asked.append(lambda: evaluate_run(model.run, data=[data]))
    if model.task.name in ("language-model", "masked"):
        asked.append(lambda: model.score(text))
    if model.task.name == "language-model":
        asked.append(lambda: model.generate(text))
    if model.task.name == "translate" and "mask" not in model.run:
        asked.append(lambda: model.score("the cat", "tac"))
    for ask in asked:
        with pytest.raises(ElmanError, match="NaN"):
            ask()


def test_weights_that_are_not_finite_are_refused_by_name(folder, recipe):
    """Even though their manifest is right."""
    run(recipe)
    for checkpoint in (folder / "run" / "best").iterdir():
        contents = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.name != "manifest.json"}
        tensors = safetensors.torch.load(contents["weights.safetensors"])
        tensors["output_bias"][0] = torch.nan
        contents["weights.safetensors"] = safetensors.torch.save(tensors)
        step = json.loads((checkpoint / "manifest.json").read_text())["step"]
        (checkpoint / "manifest.json").write_bytes(make_manifest(step, contents))
        (checkpoint / "weights.safetensors").write_bytes(contents["weights.safetensors"])
    with pytest.raises(CheckpointError, match=r"'output_bias' has a value that is not finite"):
        elman.load(folder / "run", "cpu")


def test_an_enormous_learning_rate_is_said_to_diverge(folder, recipe):
    reports = run({**recipe, "training": {**recipe["training"], "learning_rate": 1e6}})
    (note,) = [text for text in notes(reports) if "diverged" in text]
    assert "a lower training.learning_rate" in note
    assert not any("diverged" in text for text in notes(run(recipe, folder="other")))


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), "inf"])
def test_a_learning_rate_that_is_no_finite_number_is_refused(folder, recipe, rate):
    """Catches: the default rate in its place."""
    with pytest.raises(ConfigError, match=r"training.learning_rate.*finite"):
        run({**recipe, "training": {**recipe["training"], "learning_rate": rate}})
