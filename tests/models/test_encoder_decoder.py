"""Encoder-decoder: information flow from source to target, losses by definition, and learning to reverse."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.corpus.pair_corpus import NOISE, noisy_reversals, random_words
from elman.errors import ConfigError
from elman.generation import BeamConfig, beam_search, forced_log_probs
from elman.models import EncoderDecoder, EncoderDecoderConfig, LanguageModel
from elman.ops.state import take_rows, tensors
from elman.ops.taps import edit, record

WORDS, EOS = 9, 0
BLOCK = [{"attention": {"num_heads": 2, "context": 16}}, {"cross-attention": {"num_heads": 2}}, "feedforward"]
PLAIN: dict[str, Any] = {"attention": None, "context": []}
MODELS: dict[str, dict[str, Any]] = {
    "the default": {},
    "first state": {"decoder": {**PLAIN, "context": ["state"]}},
    "every input": {"decoder": {**PLAIN, "context": ["input"], "pattern": ["convolution"]}},
    "every output": {
        "encoder": {"pattern": ["gru"]},
        "decoder": {**PLAIN, "context": ["output"], "pattern": ["mamba"]},
    },
    "all ways, feeding": {"decoder": {"context": ["state", "input", "output"], "input_feeding": True}},
    **{
        f"{score} scores": {"decoder": {"context": [], "attention": {"projections": False, "score": score}}}
        for score in ("dot", "scaled", "bilinear", "additive")
    },
    "heads, feeding": {"decoder": {"context": [], "attention": {"num_heads": 4}, "input_feeding": True}},
    "Transformer": {
        "encoder": {"pattern": ["two-way-attention", "feedforward"], "positions": "sinusoidal", "norm": "pre"},
        "decoder": {**PLAIN, "pattern": BLOCK, "positions": "sinusoidal", "residual": True, "norm": "pre"},
        "shared_embeddings": True,
    },
}
every_model = pytest.mark.parametrize("recipe", MODELS)


def build(recipe: str = "the default", seed: int = 0, width: int = 8, **settings: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    whole: dict[str, Any] = {**MODELS[recipe], **settings}
    for part in ("encoder", "decoder"):
        whole[part] = {"hidden_size": width, **whole.get(part, {})}
    return EncoderDecoder(EncoderDecoderConfig.make(whole, where="model"), WORDS, WORDS, EOS).double().eval()


def ragged(*rows: list[int]) -> Ragged:
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return Ragged(torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long), lengths)


SOURCE = ragged([1, 2, 3, 4, 5, EOS], [6, 7, EOS], [8, EOS])
TARGET = ragged([3, 1, EOS], [4, 4, 2, 7, EOS], [EOS])
BATCH = Examples({"source": SOURCE, "target": TARGET}, unit="target")


@every_model
def test_teacher_forced_loss_equals_stepping(recipe: str) -> None:
    """Catches: targets moved by none; the state of another row; padding counted."""
    model = build(recipe)
    state, token, nats = model.start(SOURCE), torch.full((3,), EOS), torch.zeros(3, dtype=torch.float64)
    for time in range(TARGET.values.shape[1]):
        logits, state = model.step(token, state)
        token = TARGET.values[:, time]
        here = F.cross_entropy(logits, token, reduction="none")
        nats += torch.where(time < TARGET.lengths, here, 0.0)
    loss, carried = model.batch_loss(BATCH)
    torch.testing.assert_close(loss, nats.sum())
    assert carried is None
    torch.testing.assert_close(forced_log_probs(model, SOURCE, TARGET), -nats)
    logits = model(SOURCE, TARGET)
    each = F.cross_entropy(logits[TARGET.mask()], TARGET.values[TARGET.mask()], reduction="sum")
    torch.testing.assert_close(each, loss)


@every_model
def test_outputs_do_not_depend_on_other_rows_or_padding(recipe: str) -> None:
    """Catches: attention without its mask; the last column instead of the last real place; lengths kept from the
    encoder."""
    model = build(recipe)
    noisy = SOURCE._replace(values=torch.where(SOURCE.mask(), SOURCE.values, 5))
    together = model(noisy, TARGET)
    for row in range(3):
        size, time = int(SOURCE.lengths[row]), int(TARGET.lengths[row])
        source = Ragged(SOURCE.values[[row], :size], SOURCE.lengths[[row]])
        alone = model(source, Ragged(TARGET.values[[row], :time], TARGET.lengths[[row]]))
        torch.testing.assert_close(together[[row], :time], alone)


@every_model
def test_every_source_token_affects_every_target_token(recipe: str) -> None:
    """Catches: the summary was the first position alone, of a causal encoder."""
    model = build(recipe)
    source, target = ragged([1, 2, 3, 4]), ragged([5, 6, 7, EOS])
    before = model(source, target)
    for place in range(4) if recipe != "every output" else [0, 3]:
        changed = source.values.clone()
        changed[0, place] = 8
        after = model(source._replace(values=changed), target)
        assert (after != before).any(-1).all()


@every_model
def test_every_parameter_has_a_gradient(recipe: str) -> None:
    """Needed for distributed training, which fails on parameters without a gradient."""
    model = build(recipe).train()
    model.batch_loss(BATCH)[0].backward()
    lost = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not lost


@every_model
def test_state_rows_can_be_selected_repeated_and_reordered(recipe: str) -> None:
    model, rows = build(recipe), torch.tensor([2, 0, 0])
    state = model.start(SOURCE)
    _, state = model.step(torch.tensor([EOS, EOS, EOS]), state)
    logits, _ = model.step(torch.tensor([1, 2, 3]), state)
    taken, _ = model.step(torch.tensor([3, 1, 1]), take_rows(state, rows))
    torch.testing.assert_close(taken, logits[rows])


def test_the_state_does_not_grow_with_the_target() -> None:
    for recipe in MODELS:
        model = build(recipe)
        state = model.start(SOURCE)
        sizes = []
        for word in range(5):
            _, state = model.step(torch.full((3,), word), state)
            sizes.append([tuple(part.shape) for part in _parts(state)])
        assert all(a == b for a, b in pairwise(sizes))


def test_empty_source_and_empty_row_are_valid() -> None:
    for recipe in MODELS:
        model = build(recipe)
        for source in (ragged([], [1, 2]), ragged([], [])):
            logits, _ = model.step(torch.tensor([EOS, EOS]), model.start(source))
            assert logits.isfinite().all()


def test_label_smoothing_is_active_in_training_only() -> None:
    """Catches: smoothing in evaluation too; the share spread over padding."""
    plain, smooth = build(), build(label_smoothing=0.2)
    assert torch.equal(plain.batch_loss(BATCH)[0], smooth.batch_loss(BATCH)[0])
    log_probs = plain(SOURCE, TARGET).log_softmax(-1)[TARGET.mask()]
    right = log_probs.gather(1, TARGET.values[TARGET.mask()].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(smooth.train().batch_loss(BATCH)[0], -(0.8 * right + 0.2 * log_probs.mean(-1)).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_is_active_in_training_only(smoothing: float) -> None:
    """By the definition of R-Drop, from the distributions of two passes. Catches: one dropout for both; one
    direction of the divergence; the sum of both losses; evaluation too."""
    settings = {**MODELS["Transformer"], "label_smoothing": smoothing}
    for part in ("encoder", "decoder"):
        settings[part] = {**settings[part], "dropout": 0.3}
    plain, agreeing = (build("Transformer", **settings, agreement=agreement) for agreement in (0.0, 5.0))
    assert torch.equal(plain.batch_loss(BATCH)[0], agreeing.batch_loss(BATCH)[0])

    torch.manual_seed(7)
    found = agreeing.train().batch_loss(BATCH)[0]
    torch.manual_seed(7)
    both = Ragged(TARGET.values.repeat(2, 1), TARGET.lengths.repeat(2))
    logits = agreeing(Ragged(SOURCE.values.repeat(2, 1), SOURCE.lengths.repeat(2)), both)
    (one, first), (other, second) = (
        (
            part[TARGET.mask()].log_softmax(-1),
            F.cross_entropy(
                part[TARGET.mask()], TARGET.values[TARGET.mask()], reduction="sum", label_smoothing=smoothing
            ),
        )
        for part in logits.chunk(2)
    )
    assert not torch.equal(one, other)
    apart = F.kl_div(one, other, log_target=True, reduction="sum") + F.kl_div(
        other, one, log_target=True, reduction="sum"
    )
    torch.testing.assert_close(found, (first + second) / 2 + 5.0 * apart / 4)
    found.backward()


@pytest.mark.parametrize(
    ("settings", "differ"),
    [
        ({}, False),
        ({"encoder": {"embedding_dropout": 0.5}, "decoder": {"weight_dropout": 0.5}}, False),
        ({"encoder": {"dropout": 0.5}}, True),
        ({"decoder": {"output_dropout": 0.5}}, True),
        ({"decoder": {"attention": {"dropout": 0.5}}}, True),
        ({"encoder": {"pattern": {"bidirectional": {"layer": {"attention": {"dropout": 0.5}}}}}}, True),
        ({"decoder": {"scheduled_sampling": 0.5}}, True),
    ],
    ids=str,
)
def test_r_drop_is_rejected_without_per_row_dropout(settings: dict[str, Any], differ: bool) -> None:
    """Catches: agreement that doubled the cost of training and changed nothing; dice for all rows counted as theirs."""
    one, other = build(**settings).train()(SOURCE.repeated(2), TARGET.repeated(2)).chunk(2)
    assert torch.allclose(one[TARGET.mask()], other[TARGET.mask()]) != differ
    if differ:
        assert build(**settings, agreement=5.0)
    else:
        with pytest.raises(ConfigError, match="two passes with different dropout"):
            build(**settings, agreement=5.0)


@pytest.mark.parametrize("recipe", ["the default", "heads, feeding", "Transformer"])
def test_scheduled_sampling_feeds_model_samples_in_training(recipe: str) -> None:
    """Catches: the share of words kept instead of drawn; drawn in evaluation too; the first word drawn."""
    settings = dict(MODELS[recipe].get("decoder", {}))
    target = ragged([1, 2, 3, 4, 5, 6, 7, 8] * 4)
    given: list[Tensor] = []
    for share in (0.0, 0.5, 1.0):
        model = build(recipe, decoder={**settings, "scheduled_sampling": share})
        assert torch.equal(model(SOURCE, TARGET), build(recipe)(SOURCE, TARGET)), "in evaluation"
        seen: list[Tensor] = []
        model.decoder._embedded = lambda x, own=model.decoder._embedded, seen=seen: (seen.append(x), own(x))[1]
        model.train().batch_loss(Examples({"source": ragged([1, 2, EOS]), "target": target}, unit="target"))
        given.append(torch.cat(seen, 1)[0])
    truth = torch.cat([torch.tensor([EOS]), target.values[0, :-1]])
    assert torch.equal(given[0], truth)
    assert all(found[0] == EOS for found in given)
    share = [(found != truth).double().mean().item() for found in given]
    assert 0.2 < share[1] < 0.7 < share[2]


@every_model
def test_input_feeding_passes_the_output_vector_to_the_next_step(recipe: str) -> None:
    """Catches: zeros were fed."""
    model = build(recipe)
    if model.decoder.readout is None:
        return
    before = model(SOURCE, TARGET)
    with edit({"decoder.readout@0": 0.3}):
        after = model(SOURCE, TARGET)
    difference = (after - before).abs().amax(2).masked_fill(~TARGET.mask(), 0)  # what stands at padding is free
    changed = difference.amax(0) > 1e-9
    assert changed[0]
    assert changed[1:].any() == model.config.decoder.input_feeding


def test_dropout_works_with_input_feeding() -> None:
    model = build("all ways, feeding", decoder={**MODELS["all ways, feeding"]["decoder"], "dropout": 0.5}).train()
    torch.manual_seed(0)
    first = model.batch_loss(BATCH)[0]
    assert first != model.batch_loss(BATCH)[0]
    torch.manual_seed(0)
    assert first == model.batch_loss(BATCH)[0]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"decoder": PLAIN}, "no access to the source"),
        ({"decoder": {"pattern": ["convolution"]}}, "recurrent layers, but the decoder has none"),
        ({"decoder": {"attention": {"positions": "rotary"}}}, "the source is another"),
        ({"decoder": {"pattern": ["bidirectional"]}}, "is bidirectional"),
        ({"decoder": {"pattern": ["cros-attention"]}}, "did you mean 'cross-attention'"),
        ({"encoder": {"pattern": ["cross-attention"]}}, "unknown layer 'cross-attention'"),
        ({"encoder": {"embedding_size": 3}, "shared_embeddings": True}, "needs equal tables"),
        ({"decoder": {"attention": {"num_heads": 3}}}, "does not split into 3 heads"),
        ({"decoder": {"pattern": [{"cross-attention": {}}, {"gru": {"hidden_size": 5}}], "tied_embeddings": False}},
         "layers of equal width"),
    ],
)  # fmt: skip
def test_rejected_settings_have_a_reason(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build(**settings)


def test_language_model_rejects_cross_attention() -> None:
    with pytest.raises(ConfigError, match="unknown layer 'cross-attention'"):
        LanguageModel.Config.make({"pattern": ["cross-attention"]})


def test_settings_round_trip() -> None:
    for settings in MODELS.values():
        config = EncoderDecoderConfig.make(settings)
        assert EncoderDecoderConfig.make(config.plain()) == config


LETTERS = "abcdefgh"
TABLE = {letter: number for number, letter in enumerate(LETTERS + NOISE, start=1)}


def reversal_batch(count: int, seed: int) -> tuple[Examples, list[Any]]:
    pairs = list(noisy_reversals(random_words(count, LETTERS, 2, 5, seed), seed=seed))
    texts = {"source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]}
    fields: Any = {name: ragged(*([TABLE[x] for x in text] + [EOS] for text in found)) for name, found in texts.items()}
    return Examples(fields, unit="target"), pairs


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["recurrent", "Transformer"])
def test_noisy_reversal_is_learned_with_correct_attention(decoder: str) -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "encoder": {"pattern": [{"bidirectional": {"layer": "gru", "join": "sum"}}], "hidden_size": 32},
        "decoder": {"pattern": ["gru"], "hidden_size": 32},
    }
    if decoder == "Transformer":
        settings["decoder"] = {"hidden_size": 32, **MODELS["Transformer"]["decoder"]}
    size = len(TABLE) + 1
    model = EncoderDecoder(EncoderDecoderConfig.make(settings), size, size, EOS)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(250):
        batch, _ = reversal_batch(64, 1000 + step)
        loss, _ = model.batch_loss(batch)
        optimizer.zero_grad()
        (loss / batch.real).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    batch, pairs = reversal_batch(200, 1)
    found = beam_search(model, model.start(batch.ragged("source")), EOS, BeamConfig(beam_size=3, max_tokens=10))
    written = ["".join((LETTERS + NOISE)[token - 1] for token in best.tokens) for best, *_ in found.lists(EOS)]
    exact = sum(a == pair.target for a, pair in zip(written, pairs, strict=True)) / len(pairs)
    with torch.no_grad(), record("decoder*cross-attention.weights") as seen:
        model(batch.ragged("source"), batch.ragged("target"))
    looked = torch.stack([seen[site] for site in seen]).mean((0, 3)).argmax(-1)
    right = [looked[row, time] == place for row, pair in enumerate(pairs) for time, place in enumerate(pair.places)]
    assert exact >= 0.95
    if decoder == "recurrent":
        assert sum(right) / len(right) >= 0.95


def _parts(state: Any) -> list[Tensor]:
    return [part for _, part in tensors(state)]
