"""Dropout of a language model: in training only, each kind only where its setting applies."""

from typing import Any

import pytest
import torch
from torch import Tensor

from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors
from elman.recurrence import using

KINDS = ["dropout", "input_dropout", "output_dropout", "embedding_dropout", "weight_dropout"]
WORDS = torch.arange(12).repeat(3, 4)  # every word several times in each of three rows


def build(**settings: Any) -> LanguageModel:
    torch.manual_seed(0)
    settings = {"pattern": ["lstm"], "num_layers": 2, "hidden_size": 16, **settings}
    return LanguageModel(StackConfig.make(settings), 12)


def passing(model: LanguageModel, seed: int = 1) -> dict[str, Tensor]:
    """The inputs of each layer and of the head."""
    seen: dict[str, Tensor] = {}
    hooks = [
        block.layer.register_forward_pre_hook(lambda _, given, name=f"into {index}": seen.update({name: given[0]}))
        for index, block in enumerate(model.stack.layers)
    ]
    torch.manual_seed(seed)
    seen["top"] = model.features(WORDS, None, None)[0]
    for hook in hooks:
        hook.remove()
    return {name: value.detach() for name, value in seen.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("locked", [True, False])
def test_dropout_is_active_in_training_only(kind: str, locked: bool) -> None:
    """Catches: `drop` that ignores the mode."""
    settings = {kind: 0.5, "locked_dropout": locked}
    model, plain = build(**settings), build()
    first, second = passing(model, 1), passing(model, 2)
    assert not torch.equal(first["top"], second["top"])
    assert torch.equal(first["top"], passing(model, 1)["top"]), "the seed decides"
    model.eval()
    torch.testing.assert_close(passing(model)["top"], passing(plain)["top"])
    assert torch.equal(model(WORDS)[0], plain(WORDS)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_step_applies_no_dropout(kind: str) -> None:
    """`step` is for generation only."""
    model, plain = build(**{kind: 0.5}), build()
    state = plain.initial_state(3)
    assert torch.equal(model.step(WORDS[:, 0], state)[0], plain.step(WORDS[:, 0], state)[0])


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"dropout": 0.5}, ["into 0", "into 1", "top"]),
        ({"dropout": 0.5, "input_dropout": 0.0}, ["into 1", "top"]),
        ({"dropout": 0.5, "input_dropout": 0.0, "output_dropout": 0.0}, ["into 1"]),
        ({"input_dropout": 0.5}, ["into 0"]),
        ({"output_dropout": 0.5}, ["top"]),
        ({"embedding_dropout": 0.5}, ["into 0"]),
        ({"weight_dropout": 0.5}, []),
    ],
    ids=str,
)
def test_each_dropout_applies_at_its_own_place(settings: dict[str, float], where: list[str]) -> None:
    """Catches: output_dropout fell back to input_dropout; dropout also before the first layer of the stack."""
    found = sorted(name for name, value in passing(build(**settings)).items() if (value == 0).float().mean() > 0.2)
    assert found == where


@pytest.mark.parametrize("kind", ["dropout", "input_dropout", "output_dropout"])
def test_locked_dropout_shares_its_mask_over_time_but_not_over_rows(kind: str) -> None:
    """Catches: the mask was shared by the rows; it was drawn for each time step."""
    gone = {locked: _dropped(build(**{kind: 0.5, "locked_dropout": locked})) for locked in (True, False)}
    for name, mask in gone[True].items():
        assert (mask == mask[:, :1]).all(), f"{name}: one mask for all times"
        assert not (mask[0] == mask[1]).all(), f"{name}: each row has its own"
        assert not (gone[False][name] == gone[False][name][:, :1]).all(), f"{name}: not locked"


def test_embedding_dropout_drops_all_occurrences_of_a_token() -> None:
    """Catches: locked dropout of the word vectors instead."""
    (mask,) = _dropped(build(embedding_dropout=0.5)).values()
    lost = [mask[WORDS.eq(word)] for word in WORDS.unique()]
    assert all(units.all() or not units.any() for units in lost)
    assert 0 < sum(bool(units.all()) for units in lost) < 12
    model = build(embedding_dropout=0.5)
    assert not (model.output_weight == 0).any(), "as outputs all words stay"


def test_dropout_rescales_kept_units() -> None:
    for kind in ("input_dropout", "embedding_dropout"):
        kept = passing(build(**{kind: 0.75}))["into 0"]
        whole = passing(build())["into 0"]
        torch.testing.assert_close(kept[kept != 0], 4 * whole[kept != 0])


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_weight_dropout_reaches_every_layer_that_does_not_set_its_own(name: str) -> None:
    """Found in the first version: a layer's own weight_dropout of 0 was overruled. Catches: the last layer only."""
    pattern = [name, {name: {"weight_dropout": 0.0}}, {name: {"weight_dropout": 0.25}}]
    model = build(pattern=pattern, num_layers=3, weight_dropout=0.5)
    shares = [block.layer.cell.config.weight_dropout for block in model.stack.layers]
    assert shares == [0.5, 0.0, 0.25]
    x = torch.randn(2, 5, 16)
    with using("reference"):
        for block, share in zip(model.stack.layers, shares, strict=True):
            assert torch.equal(block.layer(x)[0], block.layer(x)[0]) == (share == 0)


def test_all_dropouts_together_leave_gradients_everywhere() -> None:
    model = build(**dict.fromkeys(KINDS, 0.3))
    total, state = model.total_loss(WORDS, WORDS.roll(1, 1), None, torch.tensor([48, 20, 0]))
    total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all(part.isfinite().all() for _, part in tensors(state))


def _dropped(model: LanguageModel) -> dict[str, Tensor]:
    """Zeroed units, for the positions that have any."""
    masks = {name: value == 0 for name, value in passing(model).items()}
    return {name: mask for name, mask in masks.items() if mask.float().mean() > 0.2}
