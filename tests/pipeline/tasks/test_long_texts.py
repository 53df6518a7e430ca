"""Texts longer than the learned positions of a model are told of: in training, in judging, in answering."""

from pathlib import Path

import pytest
from task_data import settings_of

from elman.pipeline import iterate, load
from elman.pipeline.evaluate import evaluate_run

FEW = {"positions": "learned", "max_positions": 3}
SIDES = {f"model.{side}.{key}": value for side in ("encoder", "decoder") for key, value in FEW.items()}
SETTINGS = {
    "classify": {f"model.{key}": value for key, value in FEW.items()},
    "tag": {f"model.{key}": value for key, value in FEW.items()},
    "translate": SIDES,
}
WHAT = {"classify": "are", "tag": "are", "translate": "have a source"}
LINES = {
    "classify": ["the cat is lovely", "lovely"],
    "tag": ["the cat sees the dog", "the dog"],
    "translate": ["abcd", "abc"],
}


def notes_of(settings, run):
    return [report.values["text"] for report in iterate(overrides=settings, run=run) if report.kind == "note"]


@pytest.mark.slow
@pytest.mark.parametrize("task", SETTINGS)
def test_texts_beyond_the_learned_positions_are_counted(data, task, tmp_path):
    """Catches: a text of just as many tokens counted too; nothing said in predict."""
    more = {**SETTINGS[task], "training.max_epochs": 1}
    notes = notes_of(settings_of(task, data, **more), tmp_path / "run")
    lines = {split: Path(data[task][split]).read_text() for split in ("train", "valid", "test")}
    sizes = {
        "classify": lambda text: [4] * (text.count("\n") - 1),
        "tag": lambda text: [5] * (text.count("\n\n") + 1),
        "translate": lambda text: [len(line.split("\t")[0]) for line in text.splitlines()],
    }[task]
    for split, text in lines.items():
        long = sum(size > 3 for size in sizes(text))
        assert any(
            note.startswith(f"{long} of {len(sizes(text))}") and f"of {split} {WHAT[task]}" in note for note in notes
        )
    again = evaluate_run(tmp_path / "run", data=[data[task]["test"]])
    assert again["notes"] == [note for note in notes if " of test " in note]
    model = load(tmp_path / "run", "cpu")
    with pytest.warns(UserWarning, match=f"1 lines {WHAT[task]} longer than the model's 3 learned positions"):
        assert len(list(model.predict(LINES[task]))) == 2
    model.predict(LINES[task][1])  # short enough: a warning would be an error


@pytest.mark.slow
def test_sides_have_positions_of_their_own(data, tmp_path):
    """Catches: positions of the encoder taken for those of the decoder."""
    more = {"model.decoder.positions": "learned", "model.decoder.max_positions": 4, "training.max_epochs": 1}
    notes = notes_of(settings_of("translate", data, **more), tmp_path / "run")
    assert len(notes) == 3
    assert all("have a target longer than the model's 4" in note for note in notes)


def test_pieces_of_a_masked_model_are_counted(tmp_path):
    """Catches: pieces of a document taken as one."""
    (tmp_path / "a.txt").write_text("abcdefgh\nabc\nabcdefghijkl\n")
    settings = {"task": "masked", "data.train": str(tmp_path / "a.txt"), "data.valid_fraction": 0, "device": "cpu"}
    settings |= {"data.document": "line", "data.boundary": "reset", "model.hidden_size": 8, "model.max_positions": 4}
    settings |= {"training.sequence_length": 6, "training.max_epochs": 1}
    notes = notes_of(settings, tmp_path / "run")
    assert [note.partition(":")[0] for note in notes if "positions" in note] == [
        "3 of 6 pieces of train are longer than the model's 4 learned positions"
    ]
    model = load(tmp_path / "run", "cpu")
    with pytest.warns(UserWarning, match="1 lines are longer than the model's 4 learned positions"):
        list(model.predict(["abcd<mask>", "a<mask>"]))
