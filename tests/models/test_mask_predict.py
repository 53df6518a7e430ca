"""Mask-predict: no leaks of masked tokens, losses by definition, and rejected settings."""

from typing import Any

import pytest
import torch
from mask_predict_models import (
    EOS,
    MODELS,
    SOURCE,
    WORDS,
    WORDS_ONLY,
    build,
    every_model,
    model_mask,
    noisy,
    ragged,
    row_of,
)
from torch import Tensor
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.models import MaskPredict, MaskPredictConfig

TARGET = ragged([3, 1, 8, EOS], [4, 4, 2, 7, 1, EOS], [EOS])
BATCH = Examples({"source": SOURCE, "target": TARGET}, unit="target")


def length_nats(model: MaskPredict, batch: Examples) -> Tensor:
    """Of each row, by hand."""
    log_probs, _ = model.start(batch.ragged("source"))
    difference = batch.ragged("target").lengths - 1 - batch.ragged("source").lengths
    return -log_probs[torch.arange(len(log_probs)), difference.clamp(-3, 3) + 3]


@every_model
def test_outputs_do_not_depend_on_other_rows_or_padding(recipe: str) -> None:
    """Catches: lengths kept from the encoder; lengths kept from the decoder; the mean over padding too."""
    model, target = build(recipe), ragged([3, model_mask(), 8], [4, 4, model_mask(), 7, 1], [model_mask()])
    together, lengths = model(noisy(SOURCE), noisy(target)), model.start(noisy(SOURCE))[0]
    for row in range(3):
        source, alone = row_of(SOURCE, row), row_of(target, row)
        torch.testing.assert_close(together[[row], : int(alone.lengths)], model(source, alone))
        torch.testing.assert_close(lengths[[row]], model.start(source)[0])


@every_model
@pytest.mark.parametrize("training", [True, False])
def test_masked_tokens_are_invisible_and_others_visible(recipe: str, training: bool, monkeypatch) -> None:
    """Output features do not depend on the token at a masked position. Catches: the mask left out."""
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
def test_training_loss_scales_the_mean_over_masked_tokens(recipe: str, smoothing: float, monkeypatch) -> None:
    """With equal gradients. Catches: the end counted as a word; visible words counted; the weight left out."""
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
def test_evaluation_masks_are_deterministic(recipe: str) -> None:
    """Catches: rows of another turn; odd places only; not halved; smoothing and weight in evaluation too."""
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


def test_number_of_masked_tokens_is_uniform() -> None:
    """From 1 to all, anywhere, never padding. Catches: 0 to all but one; the first ones; half of all."""
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


def test_randomness_comes_from_the_torch_generator() -> None:
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
def test_empty_targets_have_a_length_loss(training: bool, smoothing: float) -> None:
    model = build(label_smoothing=smoothing).train(training)
    batch = Examples({"source": ragged([], [1]), "target": ragged([EOS], [EOS])}, unit="target")
    loss, _ = model.batch_loss(batch)
    loss.backward()
    torch.testing.assert_close(loss, length_nats(model, batch).sum())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"decoder": {"pattern": ["two-way-attention"]}}, "no access to the source"),
        ({"decoder": {"input_feeding": True}}, "input_feeding"),
        ({"decoder": {"scheduled_sampling": 0.1}}, "scheduled_sampling"),
        ({"decoder": {"pattern": ["cros-attention"]}}, "did you mean 'cross-attention'"),
        ({"encoder": {"embedding_size": 3, "residual": False}, "shared_embeddings": True}, "needs equal tables"),
        ({"length_range": 0}, "length_range"),
        ({"type": "encoder-decoder"}, "type"),
    ],
)
def test_rejected_settings_have_a_reason(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build(**settings)


def test_settings_round_trip_and_shared_embeddings_stay_shared() -> None:
    for settings in MODELS.values():
        config = MaskPredictConfig.make(settings)
        assert MaskPredictConfig.make(config.plain()) == config
    model = build("one table")
    assert model.encoder.embedding is model.decoder.embedding
