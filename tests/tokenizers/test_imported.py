"""Imported tokenizers: equal to the original, but text cannot produce special tokens."""

import numpy as np
import pytest
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st
from imported_libraries import BUILDERS, SENTENCES

from elman.errors import ConfigError, DataError
from elman.tokenizers import IdTokenizer, Imported, StreamDecoder, load_tokenizer, train_tokenizer

CONTENTS = {make.__name__: make().to_str() for make in BUILDERS}


def theirs(name: str) -> hf.Tokenizer:
    return hf.Tokenizer.from_str(CONTENTS[name])


THEIRS = {name: theirs(name) for name in CONTENTS}
BROUGHT = {
    name: Imported(Imported.Config(eos_id=library.token_to_id("</s>"), vocab_size=500), theirs(name))
    for name, library in THEIRS.items()
}
every = pytest.mark.parametrize("name", CONTENTS)
pieces = st.sampled_from([*" ".join(SENTENCES).split(), "</s>", "<s>", "<0x41>", "##s", "  ", "\n", "\x00", "é"])
texts = st.one_of(st.text(), st.lists(pieces).map(" ".join))


@every
@given(text=texts)
def test_ids_equal_the_original_tokenizer_and_exclude_the_end(name, text):
    """Catches: marks found in the text; special tokens added; the end not replaced."""
    tokenizer, library = BROUGHT[name], THEIRS[name]
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert tokenizer.eos_id not in ids
    if not any(mark in text for mark in ("</s>", "<s>", "<unk>", "[UNK]", "<0x")):
        assert ids.tolist() == library.encode(text, add_special_tokens=False).ids


@every
@given(text=texts)
def test_decoding_equals_the_original_tokenizer(name, text):
    """Catches: the leading space kept; a space before each piece; bytes as their names."""
    tokenizer, library = BROUGHT[name], THEIRS[name]
    ids = [int(id) for id in tokenizer.encode(text)]
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False)


@every
@given(data=st.data())
def test_streamed_text_is_the_decoded_text(name, data):
    tokenizer = BROUGHT[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    decoder = StreamDecoder(tokenizer)
    for _ in range(2):
        assert "".join([*map(decoder.push, ids), decoder.flush()]) == tokenizer.decode(ids)


@every
def test_saved_tokenizer_loads_unchanged(name, tmp_path):
    tokenizer = BROUGHT[name]
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.vocab_size, again.eos_id, again.unk_id) == (500, tokenizer.eos_id, tokenizer.unk_id)
    assert again.spellings == tokenizer.spellings
    assert again.encode("the cat <a> ß").tolist() == tokenizer.encode("the cat <a> ß").tolist()


@every
def test_truncation_and_padding_of_the_original_are_disabled(name):
    library = theirs(name)
    library.enable_truncation(2)
    library.enable_padding(length=9)
    tokenizer = Imported(Imported.Config(eos_id=1), library)
    assert tokenizer.encode("the cat sat on").tolist() == THEIRS[name].encode("the cat sat on").ids


def test_text_cannot_produce_special_tokens():
    tokenizer = BROUGHT["byte_level"]
    assert tokenizer.decode(tokenizer.encode("a </s> b")) == "a </s> b"
    assert THEIRS["byte_level"].token_to_id("</s>") in THEIRS["byte_level"].encode("a </s> b").ids


def test_unknown_parts_are_reported():
    assert BROUGHT["word_pieces"].unknowns("the Ω cat") == ["Ω"]
    assert BROUGHT["unigrams"].unk_id == 1
    assert BROUGHT["byte_level"].unk_id is None
    assert BROUGHT["byte_fallback"].unknowns("the Ω cat") == []


def test_ids_beyond_the_vocabulary_are_rejected():
    tokenizer = Imported(Imported.Config(eos_id=0, vocab_size=20), theirs("byte_level"))
    with pytest.raises(DataError, match="the model has only 20 tokens"):
        tokenizer.encode("the")


def test_token_ids_as_text_map_to_themselves(tmp_path):
    tokenizer = IdTokenizer.make(vocab_size=100, eos_id=7, start_id=3)
    assert tokenizer.encode("12 99  5\n0").tolist() == [12, 99, 5, 0]
    assert tokenizer.decode([12, 99, 5]) == "12 99 5"
    assert (tokenizer.eos_id, tokenizer.start_id, tokenizer.vocab_size) == (7, 3, 100)
    decoder = StreamDecoder(tokenizer)
    assert "".join(map(decoder.push, [12, 99, 5])) == "12 99 5"
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.eos_id, again.start_id, again.encode("8 9").tolist()) == (7, 3, [8, 9])


@pytest.mark.parametrize(
    ("text", "says"), [("1 100", "not an id from 0 to 99"), ("one", "not an id"), ("7", "end-of-text")]
)
def test_invalid_token_ids_are_rejected(text, says):
    with pytest.raises(DataError, match=says):
        IdTokenizer.make(vocab_size=100, eos_id=7).encode(text)


@pytest.mark.parametrize("scheme", ["imported", "ids"])
def test_imported_tokenizers_cannot_be_trained(scheme):
    with pytest.raises(ConfigError, match="belongs to imported models"):
        train_tokenizer(scheme, ["a"])


@pytest.mark.parametrize("settings", [{"eos_id": 500}, {"start_id": 500}])
def test_special_tokens_outside_the_vocabulary_are_errors(settings, tmp_path):
    Imported(Imported.Config(vocab_size=500, **settings), theirs("byte_level")).save(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match="damaged"):
        load_tokenizer(tmp_path / "tokenizer.json")


@every
def test_usual_spacing_costs_little_and_other_spacing_more(name):
    """Catches a text that counts as spelled out because decoding sets marks of punctuation apart."""
    tokenizer = BROUGHT[name]
    usual, apart, spaces = map(tokenizer.surface_nats, ("the cat sat.", "the cat sat .", "the cat   sat."))
    assert max(usual, apart) < 3
    assert spaces in (0, usual) or spaces > usual + 10


@pytest.mark.parametrize("name", ["byte_level", "byte_fallback"])
def test_dropout_of_merges_is_off(name, tmp_path):
    """Catches: another split, and so another score, each time a text is read."""
    library = theirs(name)
    library.model.dropout = 0.9
    own = THEIRS[name].encode("the cats sat on the dog", add_special_tokens=False).ids
    assert any(library.encode("the cats sat on the dog").ids != own for _ in range(9))
    tokenizer = Imported(Imported.Config(eos_id=1), library)
    tokenizer.save(tmp_path / "tokenizer.json")
    for one in (tokenizer, load_tokenizer(tmp_path / "tokenizer.json")):
        assert all(one.encode("the cats sat on the dog").tolist() == own for _ in range(9))


def test_dropout_in_the_file_of_a_trained_tokenizer_is_off(tmp_path):
    path, text = tmp_path / "tokenizer.json", "the cats sat on the dog"
    trained = train_tokenizer({"type": "bpe", "vocab_size": 300}, SENTENCES)
    trained.save(path)
    path.write_text(path.read_text().replace('"dropout": null', '"dropout": 0.9'))
    again = load_tokenizer(path)
    assert all(again.encode(text).tolist() == trained.encode(text).tolist() for _ in range(9))
