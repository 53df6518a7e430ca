"""elman bench RUN: what is measured for which model; wrong results are not timed, and the run is unchanged."""

import hashlib
import json
import shutil

import pytest
import torch

from elman.bench import run_speed
from elman.compiler.cpu import step
from elman.runs import FileManifest


def contents(folder):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}


def measured(elman, *words):
    ended = elman("bench", *words, "--rounds", "2", "--json", "--device", "cpu")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


@pytest.fixture
def quick(monkeypatch):
    """Fewer tokens, texts and updates."""
    monkeypatch.setattr(run_speed, "TOKENS", 48)
    monkeypatch.setattr(run_speed, "TEXTS", 4)
    monkeypatch.setattr("elman.bench.updates.ROUND_SECONDS", 0.0)


@pytest.fixture
def classifier(text, elman):
    labelled = text.parent / "labelled.tsv"
    lines = text.read_text().splitlines()
    labelled.write_text("label\ttext\n" + "".join(f"{n % 2}\t{line}\n" for n, line in enumerate(lines) if line))
    words = ["--task", "classify", "--data", labelled, "--run", text.parent / "run"]
    assert elman("train", *words, "--device", "cpu", "--model.hidden_size", "8", "--training.max_steps", "2").code == 0
    return text.parent / "run"


@pytest.mark.slow
def test_a_language_model_is_measured_and_its_run_not_changed(elman, trained, quick, tmp_path):
    before = contents(trained)
    found = measured(elman, trained, "--to", tmp_path / "new" / "speed.json")
    assert contents(trained) == before
    assert json.loads((tmp_path / "new" / "speed.json").read_text()) == found
    assert found["machine"]["torch"]
    assert found["training"]["data"] == "the run's data"
    assert set(found["training"]["variants"]) == {"elman", "plain torch"}
    assert {"elman, torch", "elman, native fp32", "plain torch"} <= set(found["generation"]["variants"])
    for name in ("training", "generation", "prefill"):
        assert found[name]["peak_memory_bytes"] >= 0
        for row in found[name]["variants"].values():
            assert row["per_second"] > 0
            assert row["low"] <= row["faster"] <= row["high"]
    for row in found["generation"]["variants"].values():
        assert row["p50_ms"] <= row["p95_ms"]
    assert found["skipped"]["elman, native int8"] == "no matrix is large enough for int8"


def test_tables_name_units_reasons_and_machine(elman, trained, quick):
    ended = elman("bench", trained, "--rounds", "2", "--device", "cpu")
    for words in ("tokens/s", "ms/update", "p95 ms", "speed-up over plain torch", "MiB", "Not measured: elman, native"):
        assert words in ended.out
    assert "parameters, on cpu" in " ".join(ended.out.split())
    assert "training: 2 rounds of elman; plain torch" in ended.err


@pytest.mark.slow
def test_a_variant_with_wrong_logits_is_not_timed(elman, trained, quick, monkeypatch):
    right = step.Runner.step
    monkeypatch.setattr(step.Runner, "step", lambda self, token: right(self, token).mul_(1.1))
    monkeypatch.setattr(
        run_speed.TorchModel, "forward", lambda self, tokens: (self.embedding(tokens).new_zeros(()), None)
    )
    found = measured(elman, trained)
    assert "logits differ" in found["skipped"]["elman, native fp32"]
    assert "logits differ" in found["skipped"]["plain torch"]
    assert "elman, native fp32" not in found["generation"]["variants"]
    assert set(found["training"]["variants"]) == {"elman"}


@pytest.mark.slow
def test_a_model_that_answers_is_measured_in_texts_per_second(elman, classifier, quick):
    found = measured(elman, classifier)
    assert found["training"]["unit"] == found["prediction"]["unit"] == "texts"
    assert set(found["prediction"]["variants"]) == {"one at a time", "all in one call"}
    assert found["prediction"]["variants"]["one at a time"]["p50_ms"] > 0
    assert "generation" not in found


@pytest.mark.slow
def test_without_its_data_a_language_model_trains_on_random_tokens_and_others_are_skipped(
    elman, trained, classifier, quick, tmp_path
):
    config = trained / "config.yaml"
    gone = tmp_path / "gone"
    shutil.copytree(trained, gone)
    (gone / "config.yaml").write_text(config.read_text().replace("text.txt", "missing.txt"))
    FileManifest(gone).accept()
    assert measured(elman, gone)["training"]["data"] == "random tokens"
    (classifier.parent / "labelled.tsv").unlink()
    found = measured(elman, classifier)
    assert "cannot be read" in found["skipped"]["training"]
    assert found["prediction"]["variants"]


@pytest.mark.slow
def test_a_masked_model_fills_gaps_and_an_ngram_model_is_not_trained_by_updates(elman, text, quick):
    words = ["--data", text, "--device", "cpu"]
    masked = ["--task", "masked", "--model.hidden_size", "8", "--training.max_steps", "2", "--run", "masked"]
    assert elman("train", *words, *masked).code == 0
    assert measured(elman, "masked")["prediction"]["variants"]
    assert elman("train", *words, "--model", "ngram", "--run", "ngram").code == 0
    found = measured(elman, "ngram")
    assert "counting" in found["skipped"]["training"]
    assert "elman, native fp32" in found["generation"]["variants"]


def test_mistakes_are_named_before_anything_is_measured(elman, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(run_speed.RunSpeed, "__init__", lambda *_: pytest.fail("measured"))
    assert "Run folder of a trained model" in elman("bench").out
    assert elman("bench", trained, "--rounds", "0").code == 2
    (tmp_path / "file").touch()
    ended = elman("bench", trained, "--to", tmp_path / "file" / "speed.json")
    assert ended.code == 1
    assert "cannot write results to" in ended.err
    monkeypatch.undo()
    ended = elman("bench", tmp_path / "nothing")
    assert ended.code == 1
    assert "no such run folder" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "expected"), [("fp32", ("highest", False)), ("tf32", ("high", True))])
def test_plain_torch_trains_in_the_precision_of_the_run(elman, text, quick, monkeypatch, precision, expected):
    seen, forward = set(), run_speed.TorchModel.forward

    def watched(self, *inputs):
        if torch.is_grad_enabled():
            seen.add((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return forward(self, *inputs)

    monkeypatch.setattr(run_speed.TorchModel, "forward", watched)
    words = ["--model", "lstm", "--model.hidden_size", "8", "--training.max_steps", "2", "--run", "run"]
    assert elman("train", "--data", text, *words, "--training.precision", precision).code == 0
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    found = measured(elman, "run")["training"]  # on another device than the recipe's, which is auto
    assert found["data"] == "the run's data"
    assert found["variants"]["plain torch"]
    assert seen == {expected}
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
