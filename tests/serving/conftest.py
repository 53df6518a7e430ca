"""Fixtures: tiny runs of every task, trained once, and a client in the same process."""

import pytest
import served
from started import Started

import elman

LABELLED = "label\ttext\n" + "a\tthis is x\nb\tthat was y\n" * 12
SEVERAL = "label\ttext\na,b\tthis is x\n\tnothing\nb\tthat was y\n" * 8
RATED = "label\ttext\n" + "1.5\tthis is x\n4\tthat was y\n" * 12
TAGGED = "the\tD\ncat\tN\n\na\tD\ndog\tN\n\n" * 12
PAIRS = "".join(f"{word}\t{word.upper()}\n" for word in ("ab", "ba", "abc", "cab", "bca") * 8)
STORY = "the cat sat on the mat and saw a big dog\n" * 40
SIDES = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}}
RECIPES = {
    "classify": (LABELLED, {}),
    "several": (SEVERAL, {"task": "classify", "data": {"separator": ","}}),
    "regress": (RATED, {}),
    "tag": (TAGGED, {}),
    "translate": (PAIRS, {"model": SIDES, "search": {"beam_size": 2, "max_tokens": 6}}),
    "masked": (STORY, {"tokenizer": "word"}),
    "language-model": (STORY, {"model": {"type": "gru", "hidden_size": 8}}),
    "n-gram": (STORY, {"task": "language-model", "model": {"type": "ngram", "order": 3}}),
    "attention": (
        STORY,
        {"task": "language-model", "model": {"type": "transformer", "hidden_size": 8, "num_heads": 2}},
    ),
    "words": (STORY, {"task": "language-model", "tokenizer": "word", "model": {"type": "mamba", "hidden_size": 8}}),
}
SUFFIX = {"tag": "conll", "masked": "txt", "language-model": "txt", "n-gram": "txt", "attention": "txt", "words": "txt"}


def train(name, folder, steps=3):
    """A run folder of that name."""
    text, more = RECIPES[name]
    data = folder / f"{name}.{SUFFIX.get(name, 'tsv')}"
    data.write_text(text)
    recipe = {"task": name, "model": {"hidden_size": 8}, "device": "cpu", **more}
    recipe["data"] = {"train": str(data), "valid": str(data), **more.get("data", {})}
    recipe["training"] = {"max_steps": steps, "batch_size": 4, "log_every": 1, "learning_rate": 0.01}
    run = folder / name
    elman.train(recipe, run=run, progress=False)
    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run folders by name, each trained when it is first asked for; tests only read them."""
    folder = tmp_path_factory.mktemp("served")

    class Runs(dict):
        def __missing__(self, name):
            self[name] = train(name, folder)
            return self[name]

    return Runs()


@pytest.fixture
def client(runs):
    """A client of a server with these runs and settings: `client("classify", max_inputs=2)`."""
    opened = []

    def open_client(*names, tokens=served.TOKENS, **settings):
        found = served.Client([runs[name] for name in names], tokens, **settings)
        opened.append(found)
        return found

    yield open_client
    for one in opened:
        one.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(*words, **more):
        folder = tmp_path / f"server-{len(started)}"
        folder.mkdir()
        started.append(Started(folder, *words, **more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
