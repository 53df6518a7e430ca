"""Tagger: one tag per word, independent of the batch; losses by definition; learning."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.batches import Buckets, ExampleStore, Ragged, WordsConfig, WordTable
from elman.batches.tagging import StoredWords
from elman.corpus import TaggedSentence, TagSet
from elman.errors import ConfigError
from elman.models import Tagger, TaggerConfig
from elman.models.tagger import distinct_words

NAMES = ["O", "B-X", "I-X", "B-Y", "I-Y"]
TAGS = TagSet(NAMES, "bio")
SMALL = {"hidden_size": 8, "embedding_size": 6, "character_size": 4}
WAYS = {
    "crf": {},
    "softmax": {"head": "softmax"},
    "words alone": {"characters": None},
    "convolution": {"characters": {"convolution": {"kernel_size": 2}}, "character_pooling": "max"},
    "lstm": {"characters": "lstm", "pattern": ["gru"]},
    "attention": {"pattern": [{"two-way-attention": {"num_heads": 2}}, "feedforward"], "residual": True, "norm": "pre"},
}
SENTENCES = [
    TaggedSentence(("The", "cat", "of", "Mary-Ann", "the"), ("O", "O", "O", "B-X", "I-X")),
    TaggedSentence(("Cat",), ("B-Y",)),
    TaggedSentence(("a", "THE", "Zürich"), ("I-X", "O", "B-Y")),
]
TABLE = WordTable.of(SENTENCES, WordsConfig(min_count=1))


def batch_of(tmp_path_factory, sentences, table=TABLE, tags: TagSet | None = TAGS):
    rows = (table.encode(sentence, tags) for sentence in sentences)
    store = ExampleStore.build(rows, tmp_path_factory.mktemp("store"), "some")
    return store.gather(np.arange(len(sentences)), unit="words")


def tagger(legal=True, **given):
    torch.manual_seed(3)
    settings = {**SMALL, **given}
    if "residual" in given:
        settings |= {"embedding_size": 8, "hidden_size": 16, "characters": {"lstm": {"hidden_size": 8}}}
    config = TaggerConfig.make(settings)
    model = Tagger(config, TABLE.vocab_size, TABLE.character_count, len(TAGS), TAGS.legal() if legal else None)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)  # transitions begin at 0, which would hide them from tests
    return model.double().eval()


def test_word_ids_are_lower_cased_and_characters_are_not():
    """Catches characters of the lower-cased word."""
    table = WordTable.of(SENTENCES, WordsConfig(min_count=2, max_characters=4))
    assert table.words == ["the", "cat"]
    example = table.encode(TaggedSentence(("the", "The", "dog", "catcatcat")))
    assert example["words"].tolist() == [1, 1, 0, 0]
    assert example["word_lengths"].tolist() == [5, 5, 5, 6]
    signs = np.split(example["characters"], np.cumsum(example["word_lengths"]))
    assert (signs[0][2:] == signs[1][2:]).all()
    assert signs[0][1] != signs[1][1]
    assert signs[2].tolist() == [1, 0, table.encode(TaggedSentence(("o",)))["characters"][1], 0, 1]
    assert [table.characters[sign - 2] for sign in signs[3][1:-1]] == ["c", "a", "a", "t"]
    again = StoredWords.make(table.plain()).table()
    assert all((again.encode(one)[name] == table.encode(one)[name]).all() for one in SENTENCES for name in example)


def ragged(rows):
    sizes = torch.tensor([len(row) for row in rows])
    values = torch.zeros(len(rows), int(sizes.max()), dtype=torch.long)
    for row, content in zip(values, rows, strict=True):
        row[: len(content)] = torch.tensor(content, dtype=torch.long)
    return Ragged(values, sizes)


@given(st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=3).filter(any))
def test_character_vectors_belong_to_their_word(lengths):
    """Catches words that begin where the one before begins."""
    rows = [
        [sign for number, n in enumerate(row) for sign in range(10 * number + n, 10 * number, -1)] for row in lengths
    ]

    spelled, sizes, which = distinct_words(ragged(rows), ragged(lengths))
    found = [spelled[word, : sizes[word]].tolist() for word in which]
    expected = [list(range(10 * number + n, 10 * number, -1)) for row in lengths for number, n in enumerate(row)]
    assert found == expected
    assert len(spelled) == len({tuple(word) for word in expected})
    assert sizes.tolist() == sorted(sizes.tolist())


@pytest.mark.parametrize("lengths", [[2, 2], [4, -1], [2**40, 1], [3, 0]], ids=str)
def test_words_that_have_other_characters_are_refused(lengths):
    """Catches: damaged data that ask for memory of any size."""
    with pytest.raises(ValueError, match="have 3 characters"):
        distinct_words(ragged([[1, 2, 3]]), ragged([lengths]))


@pytest.mark.parametrize("way", WAYS)
def test_batching_and_padding_do_not_change_tags(way, tmp_path_factory):
    """Catches rows read without their lengths, and characters of one row given to the next."""
    model = tagger(**WAYS[way])
    batch = batch_of(tmp_path_factory, SENTENCES)
    loss, state = model.batch_loss(batch)
    assert state is None
    alone = [batch_of(tmp_path_factory, [sentence]) for sentence in SENTENCES]
    torch.testing.assert_close(loss, sum(model.batch_loss(one)[0] for one in alone))
    best, shares = model.best_tags(batch), model.marginals(batch)
    for row, one in enumerate(alone):
        size = one.real
        torch.testing.assert_close(best.values[row, :size], model.best_tags(one).values[0])
        assert (best.values[row, size:] == 0).all()
        torch.testing.assert_close(shares[row, :size], model.marginals(one)[0])
        torch.testing.assert_close(shares[row].sum(-1), (torch.arange(shares.shape[1]) < size).double())


@settings(max_examples=10)
@given(
    st.lists(st.lists(st.text("aBü-😀", min_size=1, max_size=60), min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["crf", "softmax"]),
)
def test_every_word_gets_one_tag_and_sequences_are_legal(tmp_path_factory, rows, head):
    """Catches tags chosen one by one."""
    batch = batch_of(tmp_path_factory, [TaggedSentence(tuple(row)) for row in rows], tags=None)
    best = tagger(head=head).best_tags(batch)
    assert best.lengths.tolist() == [len(row) for row in rows]
    for numbers, row in zip(best.values, rows, strict=True):
        assert TAGS.is_legal(TAGS.decode(numbers[: len(row)].tolist()))
    free = tagger(head=head, legal=False).best_tags(batch)
    assert free.lengths.tolist() == best.lengths.tolist()


def test_tags_are_predicted_even_if_no_sequence_is_legal(tmp_path_factory):
    """Catches probabilities that are NaN."""
    only = TagSet(["B-X", "I-X", "E-X"], "bioes")  # a single word cannot be an entity, nor anything else
    model = Tagger(TaggerConfig.make(SMALL), TABLE.vocab_size, TABLE.character_count, 3, only.legal()).eval()
    model.output.bias.data[1] = 100.0
    batch = batch_of(tmp_path_factory, SENTENCES, tags=None)
    best, shares = model.best_tags(batch), model.marginals(batch)
    assert best.values[1, 0] == 1
    assert only.is_legal(only.decode(best.values[0].tolist()))
    assert shares.isfinite().all()
    assert shares[1, 0, 1] > 0.99


@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_illegal_training_tags_have_a_finite_loss(head, tmp_path_factory):
    """Catches constraints in the loss: it was infinite."""
    model = tagger(head=head)
    loss, _ = model.batch_loss(batch_of(tmp_path_factory, SENTENCES[2:]))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_crf_loss_equals_brute_force(tmp_path_factory):
    batch = batch_of(tmp_path_factory, SENTENCES[1:2])
    for head in ("crf", "softmax"):
        model = tagger(head=head, legal=False)
        nats = -model.marginals(batch)[0, 0, NAMES.index("B-Y")].log()  # of one word, a row is a tag
        torch.testing.assert_close(model.batch_loss(batch)[0], nats)


def test_word_dropout_is_active_in_training_and_spares_characters(tmp_path_factory):
    """Catches dropout of words in eval."""
    batch = batch_of(tmp_path_factory, SENTENCES)
    unknown = batch.ragged("words")._replace(values=torch.zeros_like(batch.ragged("words").values))
    without = batch._replace(fields={**batch.fields, "words": unknown})
    quiet = {"dropout": 0.0, "word_dropout": 0.999999}
    model = tagger(**quiet)
    assert not torch.allclose(model(batch), model(without))
    torch.testing.assert_close(model.train()(batch), model(without))
    blind = tagger(characters=None, **quiet).train()
    torch.testing.assert_close(blind(batch), blind(without))


def test_invalid_settings_are_rejected():
    assert TaggerConfig.make({"characters": "lstm"}).characters == {"lstm": {}}
    with pytest.raises(ConfigError, match="unknown layer"):
        TaggerConfig.make({"characters": "lstn"})
    with pytest.raises(ConfigError, match="tied_embeddings"):
        TaggerConfig.make({"tied_embeddings": True})


@pytest.mark.slow
@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_tags_are_learned_from_context_and_suffixes(head, tmp_path):
    """The tag of a word is its ending, unless `no` stands before it: words unseen in training are tagged right."""
    dice = np.random.default_rng(0)

    def sentence():
        words, tags = [], []
        for _ in range(int(dice.integers(2, 7))):
            stem, ending = "".join(dice.choice(list("abcde"), 4)), str(dice.choice(["xx", "yy"]))
            denied = bool(dice.random() < 0.3)
            words += ["no"] * denied + [stem + ending]
            tags += ["N"] * denied + ["Z" if denied else ending]
        return TaggedSentence(tuple(words), tuple(tags))

    train, test = [sentence() for _ in range(200)], [sentence() for _ in range(50)]
    tags, table = TagSet.of(train), WordTable.of(train)
    store = ExampleStore.build((table.encode(one, tags) for one in train), tmp_path, "train")
    torch.manual_seed(0)
    config = TaggerConfig.make(
        {"hidden_size": 16, "embedding_size": 8, "character_size": 12, "dropout": 0.1, "head": head}
    )
    model = Tagger(config, table.vocab_size, table.character_count, len(tags), tags.legal())
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    for epoch in range(3):
        for batch in Buckets(store, 20, by=("words",), unit="words").epoch(epoch):
            optimizer.zero_grad()
            (model.batch_loss(batch)[0] / batch.real).backward()
            optimizer.step()
    held = ExampleStore.build((table.encode(one, tags) for one in test), tmp_path, "test")
    batch = held.gather(np.arange(len(test)), unit="words")
    best, gold = model.eval().best_tags(batch), batch.ragged("tags")
    assert (best.values == gold.values)[gold.mask()].float().mean() > 0.97
