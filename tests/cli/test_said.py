"""What the commands say unasked: what they took for what was left open, and what they could not do."""

import pytest

ONE = ["--device", "cpu", "--training.max_steps", "1", "--run", "run"]


@pytest.mark.slow
def test_without_data_the_language_is_named(elman, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--model.hidden_size", "8", "--data.language.train_documents", "50"]
    default = elman("train", *ONE, "--model.hidden_size", "8")
    assert "no --data: training on a built-in synthetic language (agreement)" in default.err
    asked = elman("train", "--data.language.type", "agreement", *small, *ONE[:-1], "other")
    assert asked.code == 0
    assert "no --data" not in asked.err


@pytest.mark.slow
def test_a_size_that_no_width_has_is_said(elman, text):
    assert "no width makes a model of 10 parameters: built one of " in elman(
        "train", "--data", text, "--parameters", "10", *ONE
    ).err.replace("\n", " ")
    made = elman("train", "--data", text, "--params", "20k", *ONE[:-1], "other")
    assert made.code == 0
    assert "no width" not in made.err


@pytest.mark.slow
@pytest.mark.parametrize("task", ["language-model", "classify"])
def test_very_little_data_gets_a_warning(elman, tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.txt").write_text("the cat sat\na dog ran\nit was big\n")
    (tmp_path / "few.csv").write_text("label,text\n" + "".join(f"{n % 2},word {n}\n" for n in range(12)))
    data = "three.txt" if task == "language-model" else "few.csv"
    said = " ".join(elman("train", "--task", task, "--data", data, "--model.hidden_size", "8", *ONE).err.split())
    assert "to train on: scores will vary with chance" in said
