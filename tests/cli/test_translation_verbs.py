"""Translations from the command line: how they are looked for, drawn and scored."""

import json

import pytest

from elman.cli.main import main

WORDS = ("ab", "ba", "abc", "cab", "bca")
PAIRS = "source\ttarget\n" + "".join(f"{word}\t{word.upper()}\n" for word in WORDS * 8)
TINY = ("--device", "cpu", "--model.encoder.hidden_size", "8", "--model.decoder.hidden_size", "8")
TINY += ("--training.max_epochs", "4", "--training.batch_size", "4", "--training.learning_rate", "1e-2")
LINES = "ab\ncab\nbca\n"


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A run folder; tests only read it."""
    folder = tmp_path_factory.mktemp("translator")
    data = folder / "p.tsv"
    data.write_text(PAIRS)
    words = ["train", "--task", "translate", "--data", data, "--valid", data, "--run", folder / "r", *TINY]
    with pytest.raises(SystemExit):
        main([str(word) for word in words])
    return folder / "r"


def answers(ended):
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_settings_of_search_are_given_as_in_a_recipe(elman, translator):
    """Planted: settings that were read and not handed on."""
    ask = ("predict", translator, "--json", "--probabilities")
    plain, wide = (answers(elman(*ask, *more, stdin=LINES)) for more in ((), ("--search.beam_size", "2")))
    assert {len(answer["candidates"]) for answer in plain} == {5}
    assert {len(answer["candidates"]) for answer in wide} == {2}
    penalized = answers(elman(*ask, "search.length_penalty=1", stdin=LINES))
    for answer in penalized:
        assert answer["candidates"][0]["score"] > answer["candidates"][0]["log_prob"]
    one = json.loads(elman("eval", translator, "--json", "--search.max_tokens", "1").out)
    assert one["exact_match"] == 0  # one token is never enough


def test_only_settings_of_search_and_of_translations_are_taken(elman, translator, trained):
    ended = elman("predict", translator, "--training.max_epochs", "1", stdin="ab\n")
    assert ended.code == 2
    assert "--search." in ended.err
    ended = elman("predict", translator, "--search.beams", "1", stdin="ab\n")
    assert ended.code == 2
    assert "beam_size" in ended.err
    ended = elman("predict", trained, "--search.beam_size", "1", stdin="ab\n")
    assert ended.code == 2
    assert "language-model" in ended.err
    assert "predict" in elman("score", translator, "--search.beam_size", "1", stdin="ab\n").err


def test_translations_can_be_drawn(elman, translator):
    """Planted: one stream of random numbers for all rows; streams by the place in a batch, not by the line."""
    ask = ("predict", translator, "--json", "--search.choose", "sample", "--search.seed", "3")
    lines = "ab\nab\nbca\nab\n"
    drawn = [answer["target"] for answer in answers(elman(*ask, stdin=lines))]
    assert len(set(drawn)) > 2  # a model that knows little
    assert [answer["target"] for answer in answers(elman(*ask, stdin=lines))] == drawn
    assert [answer["target"] for answer in answers(elman(*ask, stdin=lines[:3]))] == drawn[:1]
