"""Tokenizer files: the format of the tokenizers library, with our settings."""

import json

import pytest
import tokenizers as hf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elman.errors import ConfigError, DataError, ElmanError
from elman.tokenizers import load_tokenizer, train_tokenizer

TEXTS = ["the cat sat on the mat , the <unk> cat", "Ünïcödé 😀 \u05d0"]
SETTINGS = [
    {"type": "byte"},
    {"type": "character", "min_frequency": 2},
    {"type": "character", "normalize": "nfd"},
    {"type": "word", "vocab_size": 9, "lowercase": True, "split": "punctuation"},
    {"type": "bpe", "vocab_size": 270},
]


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
def test_tokenizer_file_round_trips(chosen, tmp_path):
    tokenizer = train_tokenizer(chosen, TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (type(again), again.name, again.config) == (type(tokenizer), chosen["type"], tokenizer.config)
    text = "The cat 😀 <eos> <unk> never seen"
    assert again.encode(text).tolist() == tokenizer.encode(text).tolist()
    assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
def test_tokenizers_library_reads_our_file(chosen, tmp_path):
    tokenizer = train_tokenizer(chosen, TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    library = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "the mat, 😀 <eos> x"
    assert library.encode(text).ids == tokenizer.encode(text).tolist()
    assert library.decode(library.encode(text).ids) == tokenizer.decode(tokenizer.encode(text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.json: no such tokenizer"):
        load_tokenizer(tmp_path / "none.json")


def test_foreign_file_is_an_error_with_its_path(tmp_path):
    train_tokenizer("bpe", TEXTS).library.save(str(tmp_path / "foreign.json"))
    with pytest.raises(DataError, match=r"foreign\.json: not an elman tokenizer"):
        load_tokenizer(tmp_path / "foreign.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"model": 1}', b'{"model": []}', b"\xff\xfe", b"[" * 100_000])
def test_non_tokenizer_file_is_an_error_with_its_path(content, tmp_path):
    (tmp_path / "odd.json").write_bytes(content)
    with pytest.raises(DataError, match=r"odd\.json"):
        load_tokenizer(tmp_path / "odd.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content["model"]["vocab"].pop("<eos>"),
        lambda content: content["model"]["vocab"].update({"<eos>": 7}),
        lambda content: content["model"]["vocab"].update({"new": 10**6}),
        lambda content: content["model"].pop("vocab"),
        lambda content: content["model"]["elman"].update(type="wordd"),
        lambda content: content["model"]["elman"].update(lowercase="perhaps"),
        lambda content: content["model"].update(elman=None),
        lambda content: content["model"]["elman"].update(type="character"),
        lambda content: content["model"]["elman"].update(type="byte"),
    ],
)
def test_damaged_file_raises_our_error(damage, tmp_path):
    path = tmp_path / "tokenizer.json"
    train_tokenizer({"type": "word", "lowercase": True}, TEXTS).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    damage(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises((ConfigError, DataError), match=r"tokenizer\.json|unknown tokenizer"):
        load_tokenizer(path)


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_mutated_file_loads_as_a_usable_tokenizer_or_fails(chosen, where, byte, cut, tmp_path):
    path = tmp_path / "tokenizer.json"
    if not (tmp_path / "whole.json").exists():
        train_tokenizer(chosen, TEXTS).save(tmp_path / "whole.json")
    content = bytearray((tmp_path / "whole.json").read_bytes())
    place = int(where * (len(content) - 1))
    content[place:] = b"" if cut else bytes([byte]) + content[place + 1 :]
    path.write_bytes(content)
    try:
        tokenizer = load_tokenizer(path)
    except ElmanError:
        return
    assert all(0 < id < tokenizer.vocab_size for id in tokenizer.encode("the cat sat"))
