"""A text without a prompt begins as texts do, though a text file is one document and begins only once."""

import pytest

import elman
from elman.batches import TokenStore
from elman.corpus import Document
from elman.pipeline.tasks.language_model.opening import LEARNT, PASSAGE, opening_tokens, stored_opening
from elman.tokenizers import train_tokenizer

PLAY = "".join(f"MAN {number}:\nthe cat sat, and the dog ran. so it was\n\n" for number in range(80))


def stored(folder, texts, kind="character", name="train"):
    tokenizer = train_tokenizer(kind, [PLAY])
    documents = [Document(text, "play", 1, len(text.encode())) for text in texts]
    return tokenizer, TokenStore.build(documents, tokenizer, folder, name)


@pytest.mark.parametrize(("kind", "end"), [("character", "\n\n"), ("byte", "\n\n"), ("bpe", "\n\n"), ("word", ".")])
def test_it_follows_a_passage_that_ends_at_a_boundary(tmp_path, kind, end):
    tokenizer, store = stored(tmp_path, [PLAY], kind)
    found = opening_tokens(tokenizer, store, store)
    text = tokenizer.decode(found)
    assert 0 < len(found) <= PASSAGE
    assert text.endswith(end)
    assert text.strip() in tokenizer.decode(tokenizer.encode(PLAY).tolist())
    assert stored_opening(tokenizer, tmp_path) == found


def test_a_text_without_any_boundary_has_none(tmp_path):
    tokenizer, store = stored(tmp_path, ["thecatsat" * 40])
    assert opening_tokens(tokenizer, store, store) == []
    assert stored_opening(tokenizer, tmp_path / "elsewhere") == []


@pytest.mark.parametrize("texts", [[PLAY] * LEARNT, PLAY.split("\n\n")], ids=["many", "short"])
def test_where_the_end_of_a_document_is_a_usual_token_it_is_learnt(tmp_path, texts):
    tokenizer, store = stored(tmp_path, texts)
    assert opening_tokens(tokenizer, store, store) == []


@pytest.mark.slow
def test_a_run_on_one_text_writes_on_after_held_out_text(tmp_path):
    (tmp_path / "play.txt").write_text(PLAY * 2)
    recipe = {"device": "cpu", "data": {"train": str(tmp_path / "play.txt")}}
    recipe |= {"model": {"type": "gru", "hidden_size": 12}, "training": {"max_steps": 20, "batch_size": 4}}
    model = elman.train(recipe, run=tmp_path / "run", progress=False)
    passage = model.tokenizer.decode(model.opening)
    assert passage.endswith("\n\n")
    settings = {"max_tokens": 30, "seed": 1}
    alone, after_it, other = model.generate_batch(["", passage, "the"], **settings, temperature=0)
    assert alone == after_it != other
    assert model.generate(**settings) == model.generate(passage, **settings)
