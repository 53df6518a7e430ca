"""Who sees order, over the registry."""

import pytest
import torch

from elman.inspection.permutation import SAME, OrderSensitivity, order_sensitivity, permutation_table
from elman.layers import LAYERS
from elman.layers.feedforward import Pointwise
from elman.layers.positions import Positions

TABLE = {(found.name, found.layers): found for found in permutation_table()}
ALONE = [name for name in LAYERS if issubclass(LAYERS[name], Pointwise | Positions)]


def test_one_attention_layer_without_positions_sees_no_order() -> None:
    """Seen to fail with a causal mask that leaves out the first token."""
    found = TABLE["attention", 1]
    assert found.shuffled < SAME
    assert (found.changed, found.sees) == (False, "all, but no order")


def test_two_attention_layers_see_order_and_so_does_one_with_positions() -> None:
    """Seen to fail with positions that were all the same."""
    for name in ("rotary", "alibi", "learned positions", "sinusoidal positions"):
        assert TABLE[f"attention, {name}", 1].changed
    for (name, layers), found in TABLE.items():
        if name.startswith("attention") and layers == 2:
            assert found.changed, name


@pytest.mark.parametrize("layers", [1, 2])
def test_attention_to_both_sides_sees_no_order_however_deep(layers: int) -> None:
    """Without a causal mask nothing tells a first layer how many tokens came before."""
    assert TABLE["two-way-attention", layers].sees == "all, but no order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("attention", "two-way-attention", *ALONE)])
def test_recurrent_convolutional_and_state_space_layers_see_order(name: str, layers: int) -> None:
    """Well above the threshold. Seen to fail with a minGRU without decay, which sums."""
    assert TABLE[name, layers].shuffled > 1000 * SAME
    assert TABLE[name, layers].sees == "order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ALONE)
def test_pointwise_layers_see_only_the_last_token(name: str, layers: int) -> None:
    """To rounding: experts read rows together with those that go the same way."""
    assert max(TABLE[name, layers].shuffled, TABLE[name, layers].replaced) < 1e-14
    assert TABLE[name, layers].sees == "only the last token"


def test_every_layer_is_in_the_table_once_and_twice() -> None:
    assert {(name, layers) for name in LAYERS for layers in (1, 2)} <= TABLE.keys()


def test_the_same_seed_gives_the_same_table_and_leaves_the_dice_alone() -> None:
    before = torch.get_rng_state()
    found = order_sensitivity("gru", [], [("gru", {})])
    assert isinstance(found, OrderSensitivity)
    assert found == TABLE["gru", 1]
    assert torch.equal(torch.get_rng_state(), before)
