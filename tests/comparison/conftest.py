"""Small races: seconds on one core."""

import copy
import random

import pytest
from processes import forked_race_workers

from elman.comparison import Race, RaceRun
from elman.runs import FileManifest

LANGUAGE = {"type": "agreement", "train_documents": 200, "valid_documents": 30, "test_documents": 60}
SMALL = {
    "entrants": ["ngram", "rnn"],
    "parameters": "5k",
    "tokens": 1500,
    "seeds": 2,
    "trials": 2,
    "recipe": {
        "device": "cpu",
        "data": {"language": LANGUAGE | {"words_per_class": 3}},
        "training": {"batch_size": 8},
        "generation": {"max_tokens": 5},
    },
}


@pytest.fixture(scope="session", autouse=True)
def _forked_race_workers():
    with forked_race_workers():
        yield


@pytest.fixture
def small():
    """Settings of a race that a test may change."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def labelled(tmp_path):
    """Texts whose label is in their words."""
    dice = random.Random(1)
    lines = []
    for _ in range(80):
        label = dice.choice(["good", "bad"])
        words = [*dice.choices(["film", "the", "was", "very", "it"], k=4), label + "ly"]
        lines.append(f"{label}\t{' '.join(words)}")
    path = tmp_path / "labels.tsv"
    path.write_text("label\ttext\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def raced(tmp_path_factory):
    """A race that is over: of three with two seeds each, of which one could not be trained."""
    settings = copy.deepcopy(SMALL) | {"entrants": {"ngram": {}, "rnn": {}, "lost": {"pattern": ["rnn"]}}, "trials": 1}
    running = RaceRun(Race.make(settings), tmp_path_factory.mktemp("race") / "race", workers=1)
    for job in running.plan.runs(running.plan.entrants[2], None, None):
        running.plan.make_folder(job)
        FileManifest(job.folder).write("config.yaml", b"model: {type: nonsense}\n")
    list(running.events())
    return running
