"""A model begins with the vectors of a file, keeps or tunes them, and afterwards needs the file no more."""

import shutil

import numpy as np
import pytest
import torch
import yaml
from task_data import BAD, GOOD, NOUNS, VERBS, settings_of

from elman.cli.main import main
from elman.comparison.plan import model_settings
from elman.errors import ConfigError, DataError
from elman.pipeline import iterate, load
from elman.pipeline.evaluate import evaluate_run
from elman.pipeline.recipe import read_recipe
from elman.pipeline.tasks import TASKS as KINDS

WORDS = ["The", "is", *GOOD, *BAD, *NOUNS, *VERBS, *"abcd"]
VECTORS = np.random.default_rng(0).normal(scale=3, size=(len(WORDS), 7)).astype(np.float32)
STEPS = {"training.max_steps": 3, "training.max_epochs": 1}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.vec"
    rows = (f"{word} {' '.join(map(repr, row))} \n" for word, row in zip(WORDS, VECTORS.tolist(), strict=True))
    path.write_text(f"{len(WORDS)} 7\n{''.join(rows)}")
    return path


def trained(run, settings, **options):
    """The notes of a training, and the trained model."""
    reports = list(iterate(overrides={**settings, **STEPS}, run=run, **options))
    return [one.values["text"] for one in reports if one.kind == "note"], load(run, "cpu")


def tables(run):
    """For each table of word vectors, its weights, and for each of its words the row in the file or None."""
    places = {word.lower(): place for place, word in enumerate(WORDS)}
    for part, words, _ in run.task.vocabularies(run.model):
        yield part.embedding.weight.detach().numpy(), [places.get(word) for word in words]


BAG = {"model.pattern": [], "model.pooling": "mean"}  # of words: quick
UNTIED = {"model.tied_embeddings": False, "tokenizer": "word"}
TASKS = {
    "classify": {"model.vectors": "FILE", "model.pattern": ["gru"]},
    "regress": {"model.vectors": "FILE", "model.pattern": ["gru"]},
    "tag": {"model.vectors": "FILE"},
    "language-model": {"model.vectors": "FILE", **UNTIED},
    "masked": {"model.vectors": "FILE", "model.pattern": [{"feedforward": {}}], "model.hidden_size": 7, **UNTIED},
    "translate": {
        "model.encoder.vectors": "FILE",
        "model.decoder.vectors": "FILE",
        "model.decoder.tied_embeddings": False,
        "tokenizer": "character",
    },
}


def settings_for(task, data, file, **choices):
    """`choices` are other settings of the vectors."""
    own = {key: str(file) if value == "FILE" else value for key, value in TASKS[task].items()}
    for name, value in choices.items():
        own |= {key.replace("vectors", name): value for key in [*own] if key.endswith(".vectors")}
    if task in data:
        return settings_of(task, data, **own)
    text = file.parent / "text.txt"
    text.write_text(
        "".join(f"the {noun} {verb} the {good} dog is bad\n" for noun in NOUNS for verb in VERBS for good in GOOD)
    )
    return {"task": task, "data.train": str(text), "device": "cpu", "training.batch_size": 4, **own}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_frozen_vectors_are_those_of_the_file_and_tuned_ones_are_not(data, tmp_path, file, task):
    """In every table of every task; catches rows that are off by one."""
    for freeze in (True, False):
        notes, run = trained(
            tmp_path / f"{freeze}",
            settings_for(task, data, file, freeze_vectors=freeze, normalize_vectors=False),
        )
        for weights, places in tables(run):
            known = [place is not None for place in places]
            same = weights[: len(places)][known] == VECTORS[[place for place in places if place is not None]]
            assert same.shape == (sum(known), 7)
            assert sum(known) > 3
            assert same.all() == freeze
            assert 0.5 < weights[: len(places)][np.logical_not(known)].std() / VECTORS.std() < 2
        assert sum("words have vectors in" in note for note in notes) == len(list(tables(run)))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "translate"])
def test_vectors_are_centred_and_scaled(data, tmp_path, file, task):
    """Frozen ones to variance 1, which shows their order too; tuned ones, after a tiny step, as random ones are."""
    frozen = trained(tmp_path / "frozen", settings_for(task, data, file, freeze_vectors=True))[1]
    tuned = trained(tmp_path / "tuned", settings_for(task, data, file) | {"training.learning_rate": 1e-9})[1]
    for (kept, places), (learnt, _) in zip(tables(frozen), tables(tuned), strict=True):
        known = [place is not None for place in places]
        expected = VECTORS[[place for place in places if place is not None]]
        expected = expected - expected.mean(0)
        expected /= np.sqrt(np.square(expected).mean())
        np.testing.assert_allclose(kept[: len(places)][known], expected, rtol=1e-4, atol=1e-5)
        found = learnt[: len(places)][known]
        np.testing.assert_allclose(found, expected * np.sqrt(np.square(found).mean()), rtol=1e-4, atol=1e-5)
        assert 0.5 < np.sqrt(np.square(found).mean()) / 7**-0.5 < 2  # the spread of random ones


@pytest.mark.slow
def test_vectors_of_which_nothing_is_left_stay_as_they_are(data, tmp_path, file):
    """One vector, or equal ones, whose differences are rounding only; catches a division by zero."""
    for text in ("cat .1 .7 2\n", "".join(f"{word} .1 .7 2\n" for word in [*GOOD, *BAD])):
        file.write_text(text)
        run = tmp_path / str(len(text))
        own = {"model.vectors": str(file), "model.freeze_vectors": True}
        weights, places = next(tables(trained(run, settings_of("classify", data, **BAG, **own))[1]))
        word = "cat" if text.startswith("cat") else GOOD[0]
        row = places.index([name.lower() for name in WORDS].index(word))
        np.testing.assert_allclose(weights[row], [0.1, 0.7, 2], rtol=1e-6)


@pytest.mark.slow
def test_what_was_found_is_said(data, tmp_path, file):
    """Of the 14 words of the texts, <eos> and <unk> have no vector, and The has one for the."""
    notes, _ = trained(tmp_path / "run", settings_of("classify", data, **BAG, **{"model.vectors": str(file)}))
    said = f"14 of 16 words have vectors in {file}, 1 of them in another case; 0.0% of the training text has none"
    assert said in notes
    file.write_text("cat 2\n")
    _, single = trained(tmp_path / "single", settings_of("classify", data, **BAG, **{"model.vectors": str(file)}))
    assert single.model.embedding.weight.isfinite().all()
    file.write_text("12 1\n" + "".join(f"{word} 1\n" for word in [*BAD, *GOOD, *NOUNS]))
    with pytest.raises(ConfigError, match=r"the vectors of .* have 1 numbers, not 9; leave it out"):
        trained(
            tmp_path / "other", settings_of("classify", data, **{"model.vectors": str(file), "model.embedding_size": 9})
        )
    notes, _ = trained(tmp_path / "one", settings_of("classify", data, **BAG, **{"model.vectors": str(file)}))
    assert (
        f"12 of 16 words have vectors in {file}, 0 of them in another case; 50.0% of the training text has none"
        in notes
    )


@pytest.mark.slow
def test_a_run_goes_on_without_the_file(data, tmp_path, file):
    """Stopped, then resumed by the same recipe, and by its folder alone, to the same bits."""
    recipe = {"model.vectors": str(file), "training.save_every": 1, "training.max_epochs": 1}
    recipe = settings_of("classify", data, **BAG) | recipe
    for _ in iterate(overrides=recipe, run=tmp_path / "whole"):
        pass
    for report in iterate(overrides=recipe, run=tmp_path / "cut"):
        if report.kind == "save":
            break
    shutil.copytree(tmp_path / "cut", tmp_path / "alone")
    file.unlink()
    for _ in iterate(overrides=recipe, run=tmp_path / "cut", resume=True):
        pass
    for _ in iterate(run=tmp_path / "alone", resume=True):
        pass
    with pytest.raises(DataError, match="no such file"):
        read_recipe(None, recipe)
    weights = [load(tmp_path / name, "cpu").model.state_dict() for name in ("whole", "cut", "alone")]
    assert all(torch.equal(weights[0][name], one[name]) for one in weights[1:] for name in one)


@pytest.mark.slow
def test_the_command_resumes_without_the_file(data, tmp_path, file, capsys):
    places = data["classify"]
    recipe = {
        "task": "classify", "device": "cpu", "data": places, "training": {"max_epochs": 1},
        "model": {"vectors": str(file), "pattern": [], "pooling": "mean"},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    train_it = ["train", str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "run"), "--resume"]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(train_it)
        assert not ended.value.code, capsys.readouterr().err
        file.unlink(missing_ok=True)


@pytest.mark.slow
def test_nothing_that_a_run_names_is_opened(data, tmp_path, file, monkeypatch):
    """The file may be any of the user's, in a run that a stranger made."""
    run = tmp_path / "run"
    trained(run, settings_of("classify", data, **BAG, **{"model.vectors": str(file)}))
    opened = []
    monkeypatch.setattr("elman.corpus.word_vectors._VectorFile.__init__", lambda *given: opened.append(given))
    evaluate_run(run)
    load(run, "cpu").predict(["the cat"])
    for _ in iterate(run=run, resume=True, overrides={"training.max_epochs": 2}):
        pass
    assert not opened


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer": "byte"}, "has none of the 257 tokens; give it a tokenizer of words"),
        ({"model": {"freeze_vectors": True}}, "freeze_vectors keeps vectors of a file: name it"),
        ({"start_from": "runs/any"}, "start_from brings its own word vectors: leave model.vectors out"),
        ({"model.vectors": "nowhere.vec"}, "nowhere.vec: no such file"),
    ],
)
def test_what_cannot_be_is_one_sentence(data, tmp_path, file, changes, reason):
    settings = settings_of("classify", data, **BAG, **{"model.vectors": str(file)}) | changes
    file.write_text("cat 1 2\n")
    with pytest.raises((ConfigError, DataError)) as caught:
        trained(tmp_path / "run", settings)
    assert reason in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_entrants_of_a_race_are_as_wide_as_the_file(file, task):
    """Catches a default width, which taggers have."""
    assert model_settings(KINDS[task], "gru", {}, {"vectors": str(file)})["embedding_size"] == 7
