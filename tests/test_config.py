"""Settings: strict, explained, and the same after a round trip."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elman.config import Config, commented_yaml, override, parse_overrides
from elman.errors import ConfigError, DataError, UnknownName
from elman.pipeline.tasks import TASKS
from elman.registry import Registry
from elman.untrusted import read_yaml


class Inner(Config):
    learning_rate: float = 0.1
    """Step size."""
    names: list[str] = []  # noqa: RUF012
    """Some names."""


class Outer(Config):
    seed: int = 1
    """The dice."""
    training: Inner = Inner()
    """How to learn."""


def test_an_unknown_key_is_refused_with_its_section_and_the_nearest_name():
    with pytest.raises(ConfigError, match=r"'learning_rat' in section 'training' .did you mean 'learning_rate'"):
        Outer.make({"training": {"learning_rat": 1}})


def test_a_wrong_value_is_named_by_its_dotted_place():
    with pytest.raises(ConfigError, match=r"training\.learning_rate: .* 'fast'"):
        Outer.make({"training": {"learning_rate": "fast"}})


def test_a_written_configuration_reads_back_the_same(tmp_path):
    config = Outer.make({"seed": 3, "training": {"learning_rate": 2e-5, "names": ["a: b", "# c", ""]}})
    path = tmp_path / "recipe.yaml"
    path.write_text(commented_yaml(config))
    assert Outer.make(read_yaml(path)) == config
    assert "# Step size." in path.read_text()


@given(st.floats(allow_nan=False, allow_infinity=False), st.lists(st.text(max_size=8), max_size=3))
def test_any_values_survive_the_round_trip(rate, names):
    config = Outer.make({"training": {"learning_rate": rate, "names": names}})
    assert Outer.make(yaml.safe_load(commented_yaml(config))) == config


def test_overrides_come_in_three_spellings():
    words = ["--training.learning-rate", "3e-4", "--seed=5", "training.names=[x, y]"]
    config = Outer.make(override({"seed": 1}, parse_overrides(words)))
    assert (config.seed, config.training.learning_rate, config.training.names) == (5, 3e-4, ["x", "y"])


def test_an_override_does_not_change_what_it_was_given():
    settings = {"training": {"learning_rate": 1}}
    override(settings, {"training.learning_rate": 2})
    assert settings == {"training": {"learning_rate": 1}}


@pytest.mark.parametrize("words", [["--seed"], ["seed"]])
def test_half_an_override_is_refused(words):
    with pytest.raises(ConfigError):
        parse_overrides(words)


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2", "!!python/object/apply:os.getcwd []", "\x00", "[" * 5000])
def test_what_is_no_recipe_is_refused(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_yaml(path)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such recipe"):
        read_yaml(tmp_path / "none.yaml")


def test_an_unknown_name_lists_the_known_and_the_nearest():
    registry = Registry("cell")
    registry.register("lstm")(type("L", (), {"__doc__": "First line.\nSecond."}))
    registry.register("gru")(type("G", (), {}))
    with pytest.raises(UnknownName, match=r"unknown cell 'lsmt' .did you mean 'lstm'.*known: gru, lstm"):
        registry["lsmt"]
    assert registry.describe() == {"gru": "", "lstm": "First line."}
    assert list(registry) == ["gru", "lstm"]


def test_a_data_error_says_where_what_and_what_would_work():
    error = DataError("no text", file="a.csv", line=3, column="body", remedy="give --column")
    assert str(error) == "a.csv, line 3, column 'body': no text (give --column)"
    assert str(DataError("no text")) == "no text"


def test_an_override_opens_a_short_form():
    """Catches: the name was lost with it."""
    assert override({"model": "lstm"}, {"model.dropout": 0.1}) == {"model": {"type": "lstm", "dropout": 0.1}}


def test_a_value_that_is_no_yaml_is_refused_with_its_place():
    with pytest.raises(ConfigError, match=r"model.pattern: '\[lstm': not valid YAML"):
        override({}, {"model.pattern": "[lstm"})


@pytest.mark.parametrize("text", [",", ";", ":", "|", "#", "-", "=", "&", "%", " ", "\t", ", ", " | "])
def test_punctuation_is_text(text):
    """Catches: all values read as YAML, to which most of these are errors, lists or nothing."""
    assert override({}, parse_overrides(["--data.separator", text])) == {"data": {"separator": text}}


@pytest.mark.parametrize(("text", "value"), [("", None), ("~", None), ("[]", []), ("{}", {}), ("''", ""), ("-1", -1)])
def test_what_yaml_writes_with_signs_stays_yaml(text, value):
    """Catches: brackets among the punctuation."""
    assert override({}, {"a": text}) == {"a": value}


@pytest.mark.parametrize("name", [{"a": 1}, ["a"], 3, None])
@pytest.mark.parametrize("registry", [Registry("thing"), TASKS])
def test_a_name_that_is_no_word_is_refused(registry, name):
    """Catches a TypeError of `task: {task: classify}`."""
    with pytest.raises(ConfigError, match=r"the name of a .* is a word, not"):
        registry[name]
