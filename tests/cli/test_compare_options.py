"""The race that the options of `elman compare` describe, without training it."""

import pytest

from elman.cli.compare import _data_name, _initial_settings, _make_race
from elman.comparison import DEMO, EMBEDDED


def test_default_data_is_the_synthetic_language():
    assert _initial_settings(None, False, None, False, []) == {"recipe": EMBEDDED}
    assert _initial_settings(None, False, None, True, []) == {}
    assert _initial_settings(None, False, None, False, ["--data.train", "my.txt"]) == {}
    assert _initial_settings(None, True, None, False, []) == DEMO


def test_a_text_replaces_the_synthetic_language():
    race = _make_race({"recipe": EMBEDDED}, {"data.train": ["my.txt"]}, {}, [])
    assert race.recipe["data"]["language"] is None
    assert race.recipe["data"]["train"] == ["my.txt"]
    assert _data_name(race.recipe) == "my"


def test_a_budget_option_replaces_the_budget_of_the_file():
    """Catches both kept."""
    race = _make_race(dict(DEMO), {}, {"flops": "1e9"}, [])
    assert (race.tokens, race.flops) == (0, "1e9")


def test_dotted_settings_reach_the_recipe():
    race = _make_race({"recipe": EMBEDDED}, {}, {"entrants": "lstm,gru"}, ["--training.batch_size", "4"])
    assert race.recipe["training"]["batch_size"] == 4
    assert list(race.entrants) == ["lstm", "gru"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare --models lstn", "did you mean 'lstm'"),
        ("compare --tokens 5 --minutes 1", "one budget"),
        ("compare no.txt", "no.txt"),
        ("compare --params tiny", "not a number of parameters"),
        ("compare --task classify", "needs data"),
    ],
)
def test_invalid_options_are_refused_before_training(elman, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    ended = elman(*words.split())
    assert ended.code in (1, 2)
    assert said in ended.err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())
