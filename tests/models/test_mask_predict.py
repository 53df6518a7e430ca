"""Mask-predict: nothing hidden is seen, losses and decoding by their definitions, and what refinement is for."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.models import MaskPredict, MaskPredictConfig
from elman.models.mask_predict import Written
from elman.ops.taps import record

WORDS, EOS = 9, 0
MODELS: dict[str, dict[str, Any]] = {
    "the default": {},
    "one table": {"shared_embeddings": True, "decoder": {"positions": "sinusoidal", "output_bias": False}},
    "recurrent": {
        "encoder": {"pattern": ["gru"], "num_layers": 0},
        "decoder": {
            "pattern": [{"bidirectional": {"join": "sum"}}],
            "num_layers": 0,
            "context": ["input", "output"],
            "attention": {"num_heads": 2},
            "tied_embeddings": False,
        },
    },
}
every_model = pytest.mark.parametrize("recipe", MODELS)


def build(recipe: str = "the default", seed: int = 0, **settings: Any) -> MaskPredict:
    torch.manual_seed(seed)
    whole: dict[str, Any] = {"length_range": 3, **MODELS[recipe], **settings}
    for part, layers in (("encoder", 2), ("decoder", 3)):
        whole[part] = {"hidden_size": 8, "num_layers": layers, **whole.get(part, {})}
    model = MaskPredict(MaskPredictConfig.make(whole, where="model"), WORDS, WORDS, EOS).double().eval()
    if model.decoder.output_bias is not None:
        nn.init.normal_(model.decoder.output_bias)
    return model


def ragged(*rows: list[int]) -> Ragged:
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return Ragged(torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long), lengths)


def row_of(rows: Ragged, row: int) -> Ragged:
    return Ragged(rows.values[[row], : int(rows.lengths[row])], rows.lengths[[row]])


def noisy(rows: Ragged) -> Ragged:
    return rows._replace(values=torch.where(rows.mask(), rows.values, 5))


SOURCE = ragged([1, 2, 3, 4, 5, EOS], [6, 7, EOS], [8, EOS])
WORDS_ONLY = ragged([3, 1, 8], [4, 4, 2, 7, 1], [])
TARGET = ragged([3, 1, 8, EOS], [4, 4, 2, 7, 1, EOS], [EOS])
BATCH = Examples({"source": SOURCE, "target": TARGET}, unit="target")


def length_nats(model: MaskPredict, batch: Examples) -> Tensor:
    """Of each row, by hand."""
    log_probs, _ = model.start(batch.ragged("source"))
    difference = batch.ragged("target").lengths - 1 - batch.ragged("source").lengths
    return -log_probs[torch.arange(len(log_probs)), difference.clamp(-3, 3) + 3]


@every_model
def test_rows_give_alone_what_they_give_together_and_padding_is_not_seen(recipe: str) -> None:
    """Planted: lengths kept from the encoder; lengths kept from the decoder; the mean over padding too."""
    model, target = build(recipe), ragged([3, model_mask(), 8], [4, 4, model_mask(), 7, 1], [model_mask()])
    together, lengths = model(noisy(SOURCE), noisy(target)), model.start(noisy(SOURCE))[0]
    for row in range(3):
        source, alone = row_of(SOURCE, row), row_of(target, row)
        torch.testing.assert_close(together[[row], : int(alone.lengths)], model(source, alone))
        torch.testing.assert_close(lengths[[row]], model.start(source)[0])


def model_mask() -> int:
    """The mask is one more word vector, after all words."""
    return WORDS


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_hidden_words_are_not_seen_and_others_are(recipe: str, training: bool, monkeypatch) -> None:
    """Whatever stands at a hidden place, all that the vocabulary is compared with stays. Planted: the mask left out."""
    model = build(recipe).train(training)
    hidden = torch.tensor([[0, 1, 0, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()
    monkeypatch.setattr(model, "_hidden", lambda words: hidden)
    monkeypatch.setattr(model, "_in_turn", lambda words: hidden.repeat(3, 1))
    features: list[Tensor] = []
    own = model.decoder.features
    monkeypatch.setattr(model.decoder, "features", lambda *given: features.append(own(*given)[0]) or own(*given))

    def read(changed: Tensor) -> Tensor:
        values = TARGET.values.clone()
        values[:, :5] = torch.where(changed, (values[:, :5] + 1) % WORDS, values[:, :5])
        model.batch_loss(Examples({"source": SOURCE, "target": Ragged(values, TARGET.lengths)}, unit="target"))
        return features.pop()[:2, :3]

    before = read(torch.zeros_like(hidden))
    torch.testing.assert_close(read(hidden), before)
    seen = WORDS_ONLY.mask() & ~hidden
    assert (read(seen) != before).any(-1).all()


@every_model
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_training_takes_the_mean_over_hidden_words_for_all_words(recipe: str, smoothing: float, monkeypatch) -> None:
    """With equal gradients. Planted: the end counted as a word; visible words counted; the weight left out."""
    model = build(recipe, label_smoothing=smoothing, length_weight=0.5).train()
    hidden = torch.tensor([[0, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()
    monkeypatch.setattr(model, "_hidden", lambda words: hidden)
    loss, carried = model.batch_loss(BATCH)
    given = WORDS_ONLY._replace(values=WORDS_ONLY.values.masked_fill(hidden, model.mask_id))
    logits = model(SOURCE, given)[hidden]
    each = F.cross_entropy(logits, WORDS_ONLY.values[hidden], label_smoothing=smoothing)
    expected = each * WORDS_ONLY.lengths.sum() + 0.5 * length_nats(model, BATCH).sum()
    torch.testing.assert_close(loss, expected)
    assert carried is None
    parameters = list(model.parameters())
    torch.testing.assert_close(
        *(torch.autograd.grad(x, parameters, allow_unused=True, materialize_grads=True) for x in (loss, expected))
    )


@every_model
def test_evaluation_hides_all_and_every_other_word_and_throws_no_dice(recipe: str) -> None:
    """Planted: rows of another turn; odd places only; not halved; smoothing and weight in evaluation too."""
    model = build(recipe, label_smoothing=0.3, length_weight=7.0)
    before = torch.get_rng_state()
    loss, _ = model.batch_loss(BATCH)
    assert torch.equal(torch.get_rng_state(), before)
    nats = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        words, source = row_of(WORDS_ONLY, row), row_of(SOURCE, row)
        for place, word in enumerate(words.values[0]):
            for company in (slice(None), slice(place % 2, None, 2)):
                given = words.values.clone()
                given[:, company] = model.mask_id
                logits = model(source, words._replace(values=given))
                nats += F.cross_entropy(logits[0, place], word) / 2
    torch.testing.assert_close(loss, nats + length_nats(model, BATCH).sum())


def test_every_number_of_hidden_words_is_as_likely_as_any_other() -> None:
    """From 1 to all, anywhere, never padding. Planted: 0 to all but one; the first ones; half of all."""
    model, lengths = build(), torch.arange(6).repeat(4000)
    words = Ragged(torch.zeros(len(lengths), 5, dtype=torch.long), lengths)
    torch.manual_seed(0)
    hidden = model._hidden(words)
    assert not (hidden & ~words.mask()).any()
    for length in range(1, 6):
        found = hidden[lengths == length]
        shares = torch.bincount(found.sum(1), minlength=length + 1) / len(found)
        torch.testing.assert_close(shares[1:], torch.full((length,), 1 / length), atol=0.03, rtol=0)
        places = found[:, :length].float().mean(0)
        torch.testing.assert_close(places, torch.full((length,), (length + 1) / 2 / length), atol=0.03, rtol=0)


def test_the_dice_are_torchs_own() -> None:
    model = build().train()
    torch.manual_seed(5)
    first = model.batch_loss(BATCH)[0]
    assert len({float(model.batch_loss(BATCH)[0].detach()) for _ in range(5)}) > 1
    torch.manual_seed(5)
    assert model.batch_loss(BATCH)[0] == first


@every_model
def test_every_parameter_has_a_gradient(recipe: str) -> None:
    model = build(recipe).train()
    model.batch_loss(BATCH)[0].backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_without_any_word_have_a_length_all_the_same(training: bool, smoothing: float) -> None:
    model = build(label_smoothing=smoothing).train(training)
    batch = Examples({"source": ragged([], [1]), "target": ragged([EOS], [EOS])}, unit="target")
    loss, _ = model.batch_loss(batch)
    loss.backward()
    torch.testing.assert_close(loss, length_nats(model, batch).sum())


@torch.no_grad()
def by_the_paper(model: MaskPredict, source: Ragged, iterations: int, candidates: int) -> tuple[list[int], float]:
    """One row, one length after the other, one place after the other."""
    log_probs = model.start(source)[0][0]
    far, size = model.config.length_range, int(source.lengths)
    lengths = {size + index - far: float(x) for index, x in enumerate(log_probs) if size + index - far >= 1}
    found: list[tuple[float, list[int]]] = []
    for length in sorted(lengths, key=lambda x: -lengths[x])[:candidates]:
        words, sure = [model.mask_id] * length, [-1.0] * length
        for number in range(iterations):
            count = length if number == 0 else max(1, length * (iterations - number) // iterations)
            for place in sorted(range(length), key=lambda x: sure[x])[:count]:
                words[place] = model.mask_id
            logits = model(source, ragged(words))[0].clone()
            logits[:, EOS] = -torch.inf
            for place in range(length):
                if words[place] == model.mask_id:
                    best = logits[place].log_softmax(-1).max(-1)
                    words[place], sure[place] = int(best.indices), float(best.values)
        found.append(((sum(sure) + lengths[length]) / (length + 1), words))
    score, words = max(found)
    return words, score


@every_model
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    iterations=st.integers(1, 5),
    candidates=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_writing_is_what_the_paper_says_row_by_row(
    recipe: str, sizes: list[int], iterations: int, candidates: int, seed: int
) -> None:
    """Empty rows, short rows, more lengths than there can be. Planted: the surest hidden again; one word less hidden;
    words in sight filled anew; the score of the wrong candidate; lengths below 1; sources of other rows."""
    model = build(recipe, seed)
    dice = random.Random(seed)
    source = ragged(*([dice.randrange(WORDS) for _ in range(size)] for size in sizes))
    found = model.write(noisy(source), iterations, candidates)
    assert found.tokens.values.shape == found.log_probs.shape == (len(sizes), int(found.tokens.lengths.max()))
    assert not found.log_probs[~found.tokens.mask()].any()
    for row in range(len(sizes)):
        words, score = by_the_paper(model, row_of(source, row), iterations, candidates)
        assert row_of(found.tokens, row).values[0].tolist() == words
        assert float(found.scores[row]) == pytest.approx(score)


@every_model
def test_neither_end_nor_mask_is_ever_written(recipe: str) -> None:
    """However probable the end is. Planted: the end left among the words."""
    model = build(recipe)
    if model.decoder.output_bias is not None:
        nn.init.constant_(model.decoder.output_bias[EOS], 50.0)
    found = model.write(ragged([1, 2, 3, 4], [5], []), 3, 5)
    words = found.tokens.values[found.tokens.mask()]
    assert ((words != EOS) & (words < WORDS)).all()
    assert found.scores.isfinite().all()
    assert model(SOURCE, WORDS_ONLY).shape[-1] == WORDS
    assert model.mask_id == model_mask()


def test_a_target_has_one_word_at_least_and_an_empty_batch_none() -> None:
    model = build()
    nn.init.constant_(model.to_length.bias[0], 50.0)  # three words less than the source
    lengths = model.write(ragged([1, 2, 3, 4, 5, 6], [1], []), 2, 1).tokens.lengths.tolist()
    assert lengths[0] == 3
    assert all(1 <= length <= 4 for length in lengths[1:])
    none = model.write(Ragged(torch.zeros(0, 4, dtype=torch.long), torch.zeros(0, dtype=torch.long)))
    assert none.tokens.values.shape == none.log_probs.shape == (0, 0)
    for wrong in ((0, 5), (10, 0)):
        with pytest.raises(ConfigError, match=r"must be 1 or more"):
            model.write(SOURCE, *wrong)


def test_the_source_is_read_once_and_all_candidates_in_each_pass(monkeypatch) -> None:
    model, read = build(), []
    for part in (model.encoder, model.decoder.stack):
        own: Callable[..., Any] = part.forward
        monkeypatch.setattr(part, "forward", lambda x, *more, own=own: read.append(len(x)) or own(x, *more))
    model.write(SOURCE, iterations=4, candidates=5)
    assert read == [3, 15, 15, 15, 15]


def test_looking_inside_changes_nothing() -> None:
    model = build()
    expected = model.write(SOURCE, 3, 2)
    with record("*") as seen:
        found = model.write(SOURCE, 3, 2)
    assert torch.equal(found.tokens.values, expected.tokens.values)
    torch.testing.assert_close(found.scores, expected.scores)
    assert seen["length.logits"].shape == (3, 1, 7)
    assert {site.split(".")[0] for site in seen} == {"encoder", "length", "decoder"}
    assert any(site.startswith("decoder.layers.1.cross-attention.weights") for site in seen)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"decoder": {"pattern": ["two-way-attention"]}}, "sees nothing of the source"),
        ({"decoder": {"input_feeding": True}}, "input_feeding"),
        ({"decoder": {"scheduled_sampling": 0.1}}, "scheduled_sampling"),
        ({"decoder": {"pattern": ["cros-attention"]}}, "did you mean 'cross-attention'"),
        ({"encoder": {"embedding_size": 3, "residual": False}, "shared_embeddings": True}, "needs one table"),
        ({"length_range": 0}, "length_range"),
        ({"type": "encoder-decoder"}, "type"),
    ],
)
def test_what_cannot_be_built_says_why(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build(**settings)


def test_settings_survive_being_written_and_read_and_one_table_is_one() -> None:
    for settings in MODELS.values():
        config = MaskPredictConfig.make(settings)
        assert MaskPredictConfig.make(config.plain()) == config
    model = build("one table")
    assert model.encoder.embedding is model.decoder.embedding


# ------------------------------------------------------------------------------------------------ small languages

Pair = tuple[list[int], list[int]]


def stutter(dice: random.Random) -> Pair:
    """Every word has its translation, and small ones are said twice."""
    source = [dice.randrange(1, 8) for _ in range(dice.randint(1, 5))]
    return source, [word + 7 for word in source for _ in range(2 if word < 3 else 1)]


def one_loud(dice: random.Random) -> Pair:
    """One word, whichever, is said aloud: at no place is that likely, so who decides each for itself says none."""
    source = [dice.randrange(1, 8) for _ in range(dice.randint(3, 4))]
    target = list(source)
    target[dice.randrange(len(target))] += 7
    return source, target


def taught(
    language: Callable[[random.Random], Pair], steps: int
) -> tuple[MaskPredict, list[Pair], Ragged, list[float]]:
    """A model, pairs that it has not been taught, their sources, and its losses of them before and after."""

    def batch(count: int, seed: int) -> tuple[list[Pair], Examples]:
        dice = random.Random(seed)
        pairs = [language(dice) for _ in range(count)]
        fields: Any = {"source": ragged(*(s for s, _ in pairs)), "target": ragged(*([*t, EOS] for _, t in pairs))}
        return pairs, Examples(fields, unit="target")

    torch.manual_seed(0)
    parts = {"encoder": {"hidden_size": 32, "num_layers": 2}, "decoder": {"hidden_size": 32, "num_layers": 6}}
    model = MaskPredict(MaskPredictConfig.make({**parts, "length_range": 8}), 8, 15, EOS)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    pairs, unseen = batch(200, 1)

    def judged() -> float:
        with torch.no_grad():
            return float(model.eval().batch_loss(unseen)[0] / unseen.real)

    losses = [judged()]
    for step in range(steps):
        some = batch(64, 1000 + step)[1]
        loss, _ = model.train().batch_loss(some)
        optimizer.zero_grad()
        (loss / some.real).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, pairs, unseen.ragged("source"), [*losses, judged()]


def texts(written: Written) -> list[list[int]]:
    rows = zip(written.tokens.values.tolist(), written.tokens.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]


@pytest.mark.slow
def test_lengths_and_words_are_learnt_and_more_passes_do_no_harm() -> None:
    model, pairs, source, losses = taught(stutter, 250)
    assert losses[1] < losses[0] / 10
    once, often = model.write(source, 1, 1), texts(model.write(source, 10, 5))
    right = sum(len(text) == len(target) for text, (_, target) in zip(texts(once), pairs, strict=True))
    exact = [
        sum(text == target for text, (_, target) in zip(found, pairs, strict=True)) for found in (texts(once), often)
    ]
    assert right >= 0.9 * len(pairs)
    assert exact[0] >= 0.9 * len(pairs)
    assert exact[1] >= exact[0] - 0.02 * len(pairs)


@pytest.mark.slow
def test_refinement_finds_what_one_pass_cannot() -> None:
    """A text in which exactly one word is loud. Planted: nothing hidden again."""
    model, pairs, source, _ = taught(one_loud, 250)

    def right(iterations: int) -> float:
        found = zip(texts(model.write(source, iterations, 1)), pairs, strict=True)
        good = [
            [(word - 1) % 7 + 1 for word in text] == heard and sum(word > 7 for word in text) == 1
            for text, (heard, _) in found
        ]
        return sum(good) / len(good)

    assert right(1) <= 0.4
    assert right(4) >= 0.85
    assert right(10) >= 0.85
