"""Token store: round trips; incomplete files are never opened as a store."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elman import files
from elman.batches import TokenStore, store
from elman.corpus.document import Document
from elman.errors import DataError
from elman.tokenizers import train_tokenizer


@dataclass(frozen=True)
class Piece:
    text: str
    size: int = 0
    continues: bool = False


def documents(*texts):
    return [Document(text, size=len(text.encode()) + 1) for text in texts]


def test_every_document_is_stored_with_its_end_token(tmp_path):
    texts = ["ab", "", "été", "<eos>"]
    built = TokenStore.build(documents(*texts), train_tokenizer("byte", []), tmp_path / "deep" / "er", "train", "print")
    for found in (built, TokenStore.open(tmp_path / "deep" / "er", "train")):
        assert [found.document(index).tolist() for index in range(4)] == [
            [byte + 1 for byte in text.encode()] + [0] for text in texts
        ]
        assert found.starts.tolist() == [0, 3, 4, 10, 16]
        assert (found.fingerprint, found.tokens.dtype) == ("print", np.uint16)
        assert (found.facts.documents, found.facts.tokens, found.facts.bytes, found.facts.characters) == (4, 16, 16, 10)
    assert len(list((tmp_path / "deep" / "er").iterdir())) == 3


def test_tokens_are_read_only(tmp_path):
    built = TokenStore.build(documents("a"), train_tokenizer("byte", []), tmp_path, "train")
    with pytest.raises(ValueError, match="read-only"):
        built.tokens[0] = 3


def test_unknowns_are_counted_where_the_text_does_not_say_so_itself(tmp_path):
    tokenizer = train_tokenizer("word", ["a b"])
    facts = TokenStore.build(documents("a <unk> été", "b 😀  <eos>"), tokenizer, tmp_path, "words").facts
    assert (facts.words, facts.tokens, facts.unknowns, facts.unknown_bytes) == (6, 8, 3, 5 + 4 + 5)
    tokenizer = train_tokenizer("character", ["ab"])
    facts = TokenStore.build(documents("aébb😀"), tokenizer, tmp_path, "characters").facts
    assert (facts.characters, facts.unknowns, facts.unknown_bytes) == (5, 2, 6)


@pytest.mark.parametrize(("group", "group_documents"), [(2**20, 2**13), (3, 2**13), (2**20, 1)])
@given(pieces=st.lists(st.tuples(st.text("abc ", max_size=4), st.booleans())))
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
def test_continued_pieces_form_one_document(pieces, group, group_documents, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUP", group)
    monkeypatch.setattr(store, "GROUP_DOCUMENTS", group_documents)
    tokenizer = train_tokenizer("byte", [])
    given_pieces = (Piece(text, len(text), continues) for text, continues in pieces)
    built = TokenStore.build(given_pieces, tokenizer, tmp_path, "train")
    expected = "".join(text + ("" if continues else "\n") for text, continues in pieces)
    expected += "\n" if pieces and pieces[-1][1] else ""
    assert [tokenizer.decode(built.document(index)) for index in range(built.facts.documents)] == [
        line + "<eos>" for line in expected.split("\n")[:-1]
    ]
    assert built.facts.tokens == len(built.tokens) == len(expected)
    assert built.facts.bytes == sum(len(text) for text, _ in pieces)


def test_large_vocabularies_use_wider_integers(tmp_path):
    text = " ".join(map(str, range(2**16)))
    tokenizer = train_tokenizer("word", [text])
    built = TokenStore.build(documents(text), tokenizer, tmp_path, "train")
    assert built.tokens.dtype == np.uint32
    assert tokenizer.decode(built.tokens[:-1]) == text
    assert built.tokens.max() == tokenizer.vocab_size - 1


def test_documents_are_encoded_lazily(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "GROUP_DOCUMENTS", 2)
    tokenizer, events = train_tokenizer("byte", []), []
    encode_batch = tokenizer.encode_batch
    monkeypatch.setattr(tokenizer, "encode_batch", lambda texts: events.append(len(texts)) or encode_batch(texts))

    def stream():
        for text in "abcde":
            events.append(text)
            yield Document(text)

    TokenStore.build(stream(), tokenizer, tmp_path, "train")
    assert events == ["a", "b", 2, "c", "d", 2, "e", 1]


def interrupted():
    yield Document("new")
    raise KeyboardInterrupt


def test_interrupted_build_keeps_the_old_store(tmp_path):
    tokenizer = train_tokenizer("byte", [])
    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(interrupted(), tokenizer, tmp_path, "train")
    assert list(tmp_path.iterdir()) == []
    TokenStore.build(documents("old"), tokenizer, tmp_path, "train")
    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(interrupted(), tokenizer, tmp_path, "train")
    assert tokenizer.decode(TokenStore.open(tmp_path, "train").tokens) == "old<eos>"


@pytest.mark.parametrize("kind", ["tokens", "starts", "json"])
def test_incomplete_build_is_not_a_store(kind, tmp_path, monkeypatch):
    tokenizer = train_tokenizer("byte", [])
    TokenStore.build(documents("old"), tokenizer, tmp_path, "train")

    def cut_off(operation, *paths):
        if operation == "rename" and paths[1].name == f"train.{kind}":
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "hook", cut_off)
    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(documents("new"), tokenizer, tmp_path, "train")
    with pytest.raises(DataError, match="interrupted"):
        TokenStore.open(tmp_path, "train")


@pytest.mark.parametrize("kind", ["tokens", "starts", "json"])
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw + b"x" * 8, lambda raw: b"", None])
def test_a_damaged_or_missing_file_is_named(kind, damage, tmp_path):
    TokenStore.build(documents("some", "text"), train_tokenizer("byte", []), tmp_path, "train")
    path = tmp_path / f"train.{kind}"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"train\.{kind}"):
        TokenStore.open(tmp_path, "train")


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"facts": {}}, {"facts": None}, {"dtype": "O"}, {"dtype": "<u4"}, {"vocab_size": None}],
)
def test_inconsistent_metadata_is_rejected(change, tmp_path):
    TokenStore.build(documents("some", "text"), train_tokenizer("byte", []), tmp_path, "train")
    path = tmp_path / "train.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=r"train\.(json|tokens)"):
        TokenStore.open(tmp_path, "train")


def test_decreasing_offsets_are_rejected(tmp_path):
    TokenStore.build(documents("some", "text"), train_tokenizer("byte", []), tmp_path, "train")
    for wrong in ([0, 11, 10], [1, 5, 10], [0, 5, 9], [0.0, 5.0, 10.0]):
        with (tmp_path / "train.starts").open("wb") as file:
            np.save(file, np.array(wrong))
        with pytest.raises(DataError, match=r"train\.starts"):
            TokenStore.open(tmp_path, "train")
