"""Stacks and language models obey the laws of layers: the same test, on recipes that cover every option.

A language model has the interface of a layer when its tokens are computed from the inputs of a layer (`OnTokens`).
Tests of what only models promise, on losses and sites, follow below. The laws were seen to fail: agreement with a step
without the top norm, cutting with a lost state of the second layer, causality with logits shifted by one, values with a
state changed in place, rows with a norm over the batch, padding with lengths that only the first layer received.
"""

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from law_cases import Situation, assert_same, real_positions, situations, walk
from test_layer_laws import test_law  # noqa: F401  (applied here to the cases below)
from torch import Tensor, nn
from torch.nn import functional as F

from elman.cells import Cell
from elman.models import LanguageModel, Stack, StackConfig
from elman.ops import taps
from elman.recurrence import using

VOCABULARY = 7
DROPOUTS = ["dropout", "input_dropout", "output_dropout", "embedding_dropout", "weight_dropout"]
RECIPES: dict[str, dict[str, Any]] = {
    **{name: {"pattern": [name]} for name in ("rnn", "gru", "lstm", "recurrent")},
    "one of each kind": {
        "pattern": ["positions", {"attention": {"num_heads": 2, "head_size": 2}}, "swiglu", {"convolution": {}}],
        "residual": True,
        "norm": "pre",
    },
    "positions below, norms by root mean square": {
        "pattern": [{"attention": {"num_heads": 2, "head_size": 2, "context": 5}}, "feedforward"],
        "residual": True,
        "norm": "pre",
        "norm_type": "rms",
        "positions": "learned",
        "max_positions": 6,
        "embedding_norm": True,
        "output_bias": False,
    },
    "state spaces": {"pattern": [{"mamba": {"state_size": 2}}, "mingru", {"s4d": {"state_size": 2}}]},
    "deep, dropouts at rest": {"pattern": ["lstm", "gru"], "num_layers": 3, **dict.fromkeys(DROPOUTS, 0.5)},
    "residual, norm before": {"pattern": ["lstm", "gru"], "residual": True, "norm": "pre"},
    "residual, norm after": {"pattern": ["rnn"], "num_layers": 2, "residual": True, "norm": "post"},
    "untied, every width another": {
        "pattern": [{"lstm": {"hidden_size": 3}}, "rnn", {"gru": {"hidden_size": 6, "reset": "before"}}],
        "embedding_size": 2,
        "tied_embeddings": False,
    },
}
BARE = ["residual, norm before", "untied, every width another"]  # also as stacks, without words


class OnTokens(nn.Module):
    """A language model with the interface of a layer: the first value of each position determines its token."""

    def __init__(self, model: LanguageModel, input_size: int):
        super().__init__()
        self.model, self.initial_state = model, model.initial_state
        self.input_size, self.output_size = input_size, model.vocab_size

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        return self.model(tokens_of(x), state, lengths)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(tokens_of(x), state)


def tokens_of(x: Tensor) -> Tensor:
    return (100 * x[..., 0]).long().remainder(VOCABULARY)


class ModelCase(NamedTuple):
    """A model with settings: the counterpart of `law_cases.Case`."""

    recipe: str
    kind: str

    def layer(self, input_size: int, hidden_size: int, seed: int) -> Any:
        settings = {"hidden_size": hidden_size, **RECIPES[self.recipe]}
        if self.kind == "stack" and settings.get("residual"):
            settings["hidden_size"] = input_size
        config = StackConfig.make(settings)
        torch.default_generator.manual_seed(seed)
        if self.kind == "stack":
            return Stack(config, input_size).double().eval()
        model = LanguageModel(config, VOCABULARY)
        if model.output_bias is not None:
            nn.init.normal_(model.output_bias)
        return OnTokens(model, input_size).double().eval()

    def running(self) -> Any:
        return using("auto")

    def __str__(self) -> str:
        return f"{self.kind} {self.recipe}"


MODELS = [ModelCase(recipe, "model") for recipe in RECIPES]
every_model = pytest.mark.parametrize("case", MODELS, ids=str)


@pytest.fixture(params=[*MODELS, *(ModelCase(recipe, "stack") for recipe in BARE)], ids=str, scope="module")
def case(request: pytest.FixtureRequest) -> ModelCase:
    return request.param


@every_model
@given(situation=situations())
def test_losses_are_the_cross_entropy_of_the_logits(case: ModelCase, situation: Situation) -> None:
    """Catches: losses without the output's bias; targets flattened along the other axis; the state not handed on."""
    layer, inputs, targets = _texts(case, situation)
    state, lengths = situation.state(layer), situation.lengths
    logits, expected_state = layer.model(inputs, state, lengths)
    losses, after = layer.model.losses(inputs, targets, state, lengths)
    real = real_positions(lengths, situation.time)
    assert not losses.requires_grad
    assert losses.shape == targets.shape
    expected = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    assert_same((losses * real, after), (expected * real, expected_state))


@every_model
@given(situation=situations())
def test_the_total_loss_is_the_sum_over_real_positions(case: ModelCase, situation: Situation) -> None:
    """With equal gradients; and without lengths, all positions are real. Catches: padding was counted; word vectors
    got no gradient as output weights."""
    layer, inputs, targets = _texts(case, situation)
    state = situation.state(layer)
    for lengths in (situation.lengths, None):
        real = torch.ones(targets.shape) if lengths is None else real_positions(lengths, situation.time)
        found = []
        total, after = layer.model.total_loss(inputs, targets, state, lengths)
        found.append((total, after, _gradients(layer, total)))
        logits, after = layer.model(inputs, state, lengths)
        total = (F.cross_entropy(logits.transpose(1, 2), targets, reduction="none") * real).sum()
        found.append((total, after, _gradients(layer, total)))
        assert_same(*found)


@every_model
@given(situation=situations())
def test_recording_has_no_effect(case: ModelCase, situation: Situation) -> None:
    """Law 7, bit by bit, beside the reference form. Catches: a listened-to layer got its input before the norm."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    with using("reference"):
        plain = layer(x, state, situation.lengths)
    with taps.record("*"):
        assert_same(layer(x, state, situation.lengths), plain, 0)
    stepped = walk(layer, x, state)
    with taps.record("*"):
        assert_same(walk(layer, x, state), stepped, 0)


@every_model
@given(situation=situations())
def test_recording_step_by_step_equals_recording_a_whole_sequence(case: ModelCase, situation: Situation) -> None:
    """Found in the first version: a step's word vectors and logits were taken for sequences as long as they are wide.
    Catches: a step outside of its layer's scope."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    with taps.record("*") as whole:
        layer(x, state)
    with taps.record("*") as steps:
        walk(layer, x, state)
    assert whole.sites() == steps.sites()
    for site in whole:
        assert whole[site].shape[:2] == (situation.batch, situation.time)
        assert_same(whole[site], steps[site], 1e-6)


@every_model
def test_every_site_is_documented_and_says_its_layer(case: ModelCase) -> None:
    """Catches: the tap of the logits had no line in `sites`; all layers had the number 0."""
    layer = case.layer(3, 4, 0)
    with taps.record("*") as recording:
        layer(torch.randn(2, 5, 3, dtype=torch.float64))
    sites = set(recording.sites())
    own = {site for site in sites if not site.startswith("layers.")}
    placed = RECIPES[case.recipe].get("positions", "none") != "none"
    assert own == set(LanguageModel.sites) - (set() if placed else {"position"})
    assert all(LanguageModel.sites.values())
    for index, block in enumerate(layer.model.stack.layers):
        inside = {site for site in sites if site.startswith(f"layers.{index}.{block.kind}.")}
        cells = [module for module in block.modules() if isinstance(module, Cell)]
        documented = [site for cell in cells for site in cell.sites] or list(block.layer.sites)
        heard = [next(known for known in documented if site.endswith(f".{known}")) for site in inside]
        # A layer may document a site that only some settings have, such as the gate of a gated convolution.
        assert sorted(heard) == sorted(documented) if cells else set(heard) <= set(documented)
        sites -= inside
    assert sites == own, "every other site belongs to a layer"


def _texts(case: ModelCase, situation: Situation) -> tuple[Any, Tensor, Tensor]:
    layer, inputs = situation.layer(case), tokens_of(situation.x())
    return layer, inputs, (3 * inputs + 1).remainder(VOCABULARY)


def _gradients(layer: nn.Module, total: Tensor) -> tuple[Tensor, ...]:
    parameters = list(layer.parameters())
    found = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
    return tuple(found)
