"""Masked model: masking, visibility, and the pseudo-likelihood against brute force."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ConfigError
from elman.models import MODELS, LanguageModel, Masked, MaskedConfig, StackConfig, masked, prediction_of
from elman.ops import taps
from elman.pipeline import read_recipe

WORDS = 11
PATTERNS: dict[str, dict[str, Any]] = {
    "the default": {},
    "a head, norms after": {"head": "dense", "norm": "post", "embedding_norm": True, "output_bias": False},
    "both ways by recurrence": {"pattern": [{"bidirectional": {"join": "sum"}}], "positions": "none"},
    "untied and twice as wide": {"pattern": ["bidirectional"], "residual": False, "tied_embeddings": False},
    "causal layers": {"pattern": ["lstm", "attention"]},
    "a mask of its own": {"mask_id": 3},
}


def build(recipe: str = "the default", seed: int = 0, **settings: Any) -> Masked:
    torch.manual_seed(seed)
    config = MaskedConfig.make({"hidden_size": 8, **PATTERNS[recipe], **settings}, where="model")
    model = Masked(config, WORDS).double().eval()
    if model.output_bias is not None:
        nn.init.normal_(model.output_bias)
    return model


def texts(rows: int = 3, time: int = 7, seed: int = 1) -> Tensor:
    return torch.randint(WORDS, (rows, time), generator=torch.Generator().manual_seed(seed))


def one_by_one(model: Masked, text: Tensor, apart: int) -> Tensor:
    """Nats (time,) of one row by the definition: one pass per token, which is masked with its group."""
    nats = []
    for place in range(len(text)):
        given = text.clone()
        given[place % apart :: apart] = model.mask_id
        logits, _ = model(given.unsqueeze(0))
        nats.append(-logits[0, place].log_softmax(-1)[text[place]])
    return torch.stack(nats).detach()


every_pattern = pytest.mark.parametrize("recipe", PATTERNS)


@pytest.mark.slow
@every_pattern
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_losses_are_the_pseudo_likelihood_by_brute_force(recipe: str, lengths: list[int], seed: int) -> None:
    """Row by row, padding left out. Catches: the mask one place too far; lengths not handed to the stack; a row's
    nats written into its neighbour; the mask's own vector among the answers. Found: a batch of empty rows broke."""
    model, text = build(recipe, seed), texts(len(lengths), 6, seed)
    losses, state = model.losses(text.flip(1), text, None, torch.tensor(lengths))
    assert losses.shape == text.shape
    assert not losses.requires_grad
    assert state.shape == (len(text), 0)
    for row, length in enumerate(lengths):
        if length:
            expected = one_by_one(model, text[row, :length], apart=length)
            torch.testing.assert_close(losses[row, :length], expected)


@every_pattern
@pytest.mark.parametrize("share", [0.15, 0.4, 1.0])
def test_quick_losses_mask_every_nth_token_at_once(recipe: str, share: float) -> None:
    """Catches: neighbours were masked together, not the n-th ones; passes as many as positions."""
    model, text, lengths = build(recipe, mask_share=share), texts(3, 20), [20, 13, 1]
    losses, _ = model.quick_losses(text, text, None, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        expected = one_by_one(model, text[row, :length], apart={0.15: 7, 0.4: 2, 1.0: 1}[share])
        torch.testing.assert_close(losses[row, :length], expected)


def test_quick_losses_are_much_cheaper_than_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text, read = build(), texts(2, 40), []
    features = Masked.features
    monkeypatch.setattr(
        Masked, "features", lambda self, *given: read.append(given[0].numel()) or features(self, *given)
    )
    model.quick_losses(text, text)
    model.losses(text, text)
    assert read == [7 * text.numel(), 40 * text.numel()]


@every_pattern
def test_masked_position_does_not_see_its_token(recipe: str) -> None:
    """The distribution at a masked position does not depend on its token, while others do. Catches: the mask was left
    out."""
    model, text = build(recipe), texts(1, 6)
    before = model.masked_logits(text)
    for place in range(5):  # causal layers have nobody who would see the last
        changed = text.clone()
        changed[0, place] = (text[0, place] + 1) % WORDS
        after = model.masked_logits(changed)
        torch.testing.assert_close(after[0, place], before[0, place])
        assert not torch.allclose(after, before)


def test_masked_tokens_do_not_leak_in_training() -> None:
    """With nothing kept: masked tokens affect the loss as targets only."""
    model, text = build(keep_share=0, random_share=0, mask_share=0.5), texts(4, 9)
    given, hidden = model.hide(text, torch.ones_like(text, dtype=torch.bool))
    assert (given[hidden] == model.mask_id).all()
    assert torch.equal(given[~hidden], text[~hidden])


@pytest.mark.parametrize("positions", [1, 20, 50])
def test_chunk_size_does_not_change_losses(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a piece's nats were written from the first row on."""
    model, text, lengths = build(), texts(4, 9), torch.tensor([9, 6, 6, 2])
    expected = model.losses(text, text, None, lengths)[0], model.quick_losses(text, text, None, lengths)[0]
    logits = model.masked_logits(text, lengths)
    monkeypatch.setattr(masked, "POSITIONS", positions)
    found = model.losses(text, text, None, lengths)[0], model.quick_losses(text, text, None, lengths)[0]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.masked_logits(text, lengths), logits)


@every_pattern
def test_masked_logits_match_the_losses(recipe: str) -> None:
    model, text, lengths = build(recipe), texts(), torch.tensor([7, 0, 4])
    real = torch.arange(7) < lengths[:, None]
    nats = F.cross_entropy(model.masked_logits(text, lengths).transpose(1, 2), text, reduction="none")
    torch.testing.assert_close(nats[real], model.losses(text, text, None, lengths)[0][real])


@every_pattern
def test_batching_and_padding_do_not_change_outputs(recipe: str) -> None:
    model, text, lengths = build(recipe), texts(), torch.tensor([7, 5, 2])
    noise = torch.where(torch.arange(7) < lengths[:, None], text, (text + 3) % WORDS)
    together, _ = model(noise, None, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row, :length], model(text[[row], :length])[0][0])


def test_without_padding_lengths_change_nothing() -> None:
    model, text = build(), texts()
    full = torch.full((3,), 7)
    torch.testing.assert_close(model.losses(text, text, None, full), model.losses(text, text))


@every_pattern
def test_total_loss_per_position_is_the_mean_over_masked_tokens(recipe: str, monkeypatch) -> None:
    """With equal gradients, with and without lengths. Catches: divided by the share that was asked for; padding was
    counted; the loss of tokens in sight was counted."""
    model, text = build(recipe), texts(4, 9)
    hidden = torch.rand(text.shape, generator=torch.Generator().manual_seed(3)) < 0.3
    for lengths in (torch.tensor([9, 5, 0, 2]), None):
        real = torch.ones_like(hidden) if lengths is None else torch.arange(9) < lengths[:, None]
        chosen = hidden & real
        given = text.masked_fill(chosen, model.mask_id)
        monkeypatch.setattr(model, "hide", lambda *_, given=given, chosen=chosen: (given, chosen))
        total, state = model.total_loss(text.flip(0), text, None, lengths)
        logits, _ = model(given, None, lengths)
        expected = F.cross_entropy(logits[chosen], text[chosen])
        torch.testing.assert_close(total / real.sum(), expected)
        assert state.shape == (4, 0)
        parameters = list(model.parameters())
        found = [
            torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            for loss in (total / real.sum(), expected)
        ]
        torch.testing.assert_close(*found)


def test_masking_rates_match_the_settings() -> None:
    """Catches: random tokens among those kept in sight; the share of the mask as the rest of all tokens."""
    model = build(mask_share=0.2, keep_share=0.1, random_share=0.3)
    text = torch.full((400, 500), 5)
    lengths = torch.arange(400)
    real = torch.arange(500) < lengths[:, None]
    torch.manual_seed(0)
    given, hidden = model.hide(text, real)
    count, all_hidden = int(real.sum()), int(hidden.sum())
    assert not hidden[~real].any()
    assert torch.equal(given[~hidden], text[~hidden])
    assert all_hidden / count == pytest.approx(0.2, abs=0.01)
    shares = torch.bincount(given[hidden], minlength=WORDS + 1) / all_hidden
    assert shares[model.mask_id] == pytest.approx(0.6, abs=0.015)
    assert shares[5] == pytest.approx(0.1 + 0.3 / WORDS, abs=0.015)
    others = shares[[word for word in range(WORDS) if word != 5]]
    torch.testing.assert_close(others, torch.full_like(others, 0.3 / WORDS), atol=0.01, rtol=0)


def test_at_least_one_token_is_masked_and_never_padding() -> None:
    """Catches: padding could be the one. Without any real position nothing is hidden, and nothing breaks."""
    model = build(mask_share=1e-6)
    for seed in range(30):
        torch.manual_seed(seed)
        _, hidden = model.hide(texts(), torch.arange(7) < torch.tensor([[1], [0], [3]]))
        assert hidden.sum() == 1
        assert not (hidden & (torch.arange(7) >= torch.tensor([[1], [0], [3]]))).any()
    total, _ = model.total_loss(texts(), texts(), None, torch.zeros(3, dtype=torch.long))
    total.backward()
    assert total == 0


def test_randomness_comes_from_the_torch_generator() -> None:
    """Needed to resume a run exactly. Losses use no random numbers."""
    model, text = build(), texts(8, 40)
    torch.manual_seed(5)
    first = model.total_loss(text, text)[0]
    assert model.total_loss(text, text)[0] != first
    torch.manual_seed(5)
    assert model.total_loss(text, text)[0] == first
    before = torch.get_rng_state()
    model.losses(text, text)
    model.quick_losses(text, text)
    assert torch.equal(torch.get_rng_state(), before)


def test_both_sides_are_visible_but_no_other_chunk() -> None:
    """Catches: the state of the piece before was handed on."""
    model, text = build("causal layers"), texts()
    before = model.stack(model.embedding(texts(3, 5, 9)))[1]
    for state in (None, model.initial_state(3), before):
        torch.testing.assert_close(model(text, state)[0], model(text)[0])
    default, changed = build(), text.clone()
    changed[:, -1] = (text[:, -1] + 1) % WORDS
    assert not torch.isclose(default.masked_logits(changed)[:, 0], default.masked_logits(text)[:, 0]).all()


def test_mask_is_an_added_embedding_or_a_vocabulary_token() -> None:
    own, given = build(), build("a mask of its own")
    assert (own.mask_id, own.embedding.num_embeddings) == (WORDS, WORDS + 1)
    assert (given.mask_id, given.embedding.num_embeddings) == (3, WORDS)
    assert own(texts())[0].shape == given(texts())[0].shape == (3, 7, WORDS)
    with pytest.raises(ConfigError, match=r"mask_id is 11, but the vocabulary has the ids 0 to 10"):
        build(mask_id=WORDS)


def test_the_head_is_a_dense_layer_gelu_and_a_norm() -> None:
    model, text = build("a head, norms after"), texts()
    features, _ = LanguageModel.features(model, text, None, None)
    expected = F.layer_norm(
        F.gelu(features @ model.head.dense.weight.T + model.head.dense.bias), (8,), model.head.norm.weight
    )
    torch.testing.assert_close(model.features(text, None, None)[0], expected)


def test_recording_has_no_effect_and_covers_every_tap() -> None:
    model, text = build(), texts()
    expected, _ = model(text)
    with taps.record("*") as seen:
        torch.testing.assert_close(model(text)[0], expected)
    assert {site for site in seen if not site.startswith("layers.")} == set(Masked.sites)
    assert seen["layers.0.two-way-attention.weights"].shape == (3, 7, 1, 7)


def test_step_is_unavailable_with_a_reason() -> None:
    model = build()
    with pytest.raises(ConfigError, match=r"cannot generate.*elman score.*left-to-right model, such as --model lstm"):
        model.step(torch.zeros(1, dtype=torch.long), model.initial_state(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_share": 0.7, "random_share": 0.4}, "0.7 . 0.4 is more than 1"),
        ({"mask_share": 0}, "mask_share"),
        ({"head": "wide"}, "head"),
        ({"pattern": ["bidirectional"]}, "residual connections need layers as wide as their input"),
        ({"pattern": ["two-way-atention"]}, "did you mean 'two-way-attention'"),
    ],
)
def test_invalid_models_are_rejected_when_the_recipe_is_read(settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_recipe({"model": {"type": "masked", "hidden_size": 8, **settings}})


def test_only_masked_models_accept_bidirectional_layers() -> None:
    recipe = read_recipe({"model": "masked"})
    assert read_recipe(recipe.plain()).plain() == recipe.plain()
    assert [name for entry in recipe.model.pattern for name in entry] == ["two-way-attention", "feedforward"] * 2
    assert read_recipe({"model": {"type": "masked", "mask_id": 103}}).model.mask_id == 103
    assert prediction_of(MODELS["masked"]) == "masked"
    assert prediction_of(MODELS["ngram"]) == prediction_of(LanguageModel) == "left-to-right"
    with pytest.raises(ConfigError, match=r"is bidirectional.*such as masked"):
        StackConfig.make({"pattern": ["two-way-attention"]})
