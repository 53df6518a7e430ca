"""Fixtures: a text, a run trained on it once, and the command line as a function."""

import random
from io import BytesIO, TextIOWrapper
from typing import NamedTuple

import pytest
from processes import forked_race_workers

from elman.cli.main import main

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "saw", "on", "and", "big", "Haus", "größe"]
TINY = ["--device", "cpu", "--model.hidden_size", "16", "--training.max_steps", "8", "--training.sequence_length", "16"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def write_text(path, lines=100):
    dice = random.Random(1)
    path.write_text("\n".join(" ".join(dice.choices(WORDS, k=dice.randint(2, 9))) for _ in range(lines)) + "\n")
    return path


@pytest.fixture(scope="session", autouse=True)
def _forked_race_workers():
    with forked_race_workers():
        yield


@pytest.fixture
def elman(capsys, monkeypatch):
    """`elman("train", ...)` runs the command and returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words, stdin=None):
        capsys.readouterr()
        if stdin is not None:
            monkeypatch.setattr(
                "sys.stdin", TextIOWrapper(BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
            )
        try:
            main([str(word) for word in words])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_text(tmp_path / "text.txt")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run folder; tests only read it."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_text(folder / "text.txt")
    with pytest.raises(SystemExit):
        main(["train", "--data", str(data), "--run", str(folder / "run"), *TINY])
    return folder / "run"
