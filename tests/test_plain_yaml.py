"""Recipes as plain values: what YAML has beyond them is refused at once, in one sentence."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import ConfigError
from elman.plain_yaml import parse_yaml

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
REFUSED = {
    ALIASES: "aliases",
    "a: &a " + "x" * 50_000 + "\nb: [" + ", ".join(["*a"] * 100) + "]": "aliases",
    "a: &a [*a]": "line 1: .*a stands for nothing",
    "a: &a {b: *a}": "stands for nothing",
    "a: *b": "stands for nothing",
    "a: !!set {b, c}": "tag .*set",
    "a: !!binary aGk=": "tag .*binary",
    "a: !!timestamp 2024-01-01": "tag .*timestamp",
    "a: !!python/object/apply:os.getcwd []": "tag .*python",
    "a: !mine b": "tag '!mine'",
    "a: " + "9" * 5_000: "number of 5000 digits",
    "a: 0x" + "f" * 5_000: "number of 5002 digits",
    "[" * 100_000: "inside each other",
    "- " * 100_000: "inside each other",
    "? [a]\n: b": "plain text",
    "{[a]: b}": "plain text",
    "a: 1\nb: 2\na: 3": "line 3: the key 'a' .* second time",
    "<<: 3": "mappings only",
    "a: 1\n---\nb: 2": "second document",
    "\x00": "not valid YAML",
    "a: [": "not valid YAML",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_what_no_recipe_needs_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match=REFUSED[text]) as told:
        parse_yaml(text)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


READ = {
    "2024-01-01": "2024-01-01",
    "2024-01-01 10:20:30": "2024-01-01 10:20:30",
    "1:30": "1:30",
    "190:20:30.15": "190:20:30.15",
    "1" * 100: int("1" * 100),
    "!!str 12": "12",
    "yes": True,
    "0x1f": 31,
    "1_000": 1000,
    ".5": 0.5,
    "": None,
    "~": None,
    "=": "=",
    "{2024-01-01: 1, yes: 2, 3: 4}": {"2024-01-01": 1, "yes": 2, "3": 4},
    "{a: &b {c: 1, d: 2}, e: {<<: *b, d: 3}}": {"a": {"c": 1, "d": 2}, "e": {"c": 1, "d": 3}},
    "{a: &b [1, 2], c: *b}": {"a": [1, 2], "c": [1, 2]},
    "{<<: [{a: 1}, {a: 2, b: 3}]}": {"a": 1, "b": 3},
    '"\\udcf6"': "\udcf6",
    "{a: {}, b: []}": {"a": {}, "b": []},
}


@pytest.mark.parametrize("text", READ)
def test_plain_values_are_read(text):
    value = parse_yaml(text)
    assert value == READ[text]
    assert type(value) is type(READ[text])


def test_the_size_that_is_refused_is_the_one_that_was_given():
    assert parse_yaml("a: [1, 2]", at_most=10) == {"a": [1, 2]}
    with pytest.raises(ConfigError, match="too long"):
        parse_yaml("a: [1, 2]", at_most=7)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_what_is_written_is_read_back(value):
    assert parse_yaml(yaml.safe_dump(value)) == json.loads(json.dumps(value))
