"""Order sensitivity of every registered layer."""

import pytest
import torch

from elman.inspection.labs.permutation import TOLERANCE, OrderSensitivity, order_sensitivity, permutation_table
from elman.layers import LAYERS
from elman.layers.feedforward import Pointwise
from elman.layers.positions import Positions

TABLE = {(found.name, found.layers): found for found in permutation_table()}
POINTWISE = [name for name in LAYERS if issubclass(LAYERS[name], Pointwise | Positions)]
ORDERED = [name for name in LAYERS if name not in ("attention", "two-way-attention", *POINTWISE)]


def test_one_attention_layer_without_positions_is_permutation_invariant() -> None:
    """Catches a causal mask that leaves out the first token."""
    found = TABLE["attention", 1]
    assert found.shuffled < TOLERANCE
    assert (found.changed, found.sees) == (False, "all, but no order")


def test_two_attention_layers_or_positions_make_it_order_sensitive() -> None:
    """Catches identical positions."""
    for name in ("rotary", "alibi", "learned positions", "sinusoidal positions"):
        assert TABLE[f"attention, {name}", 1].changed
    for (name, layers), found in TABLE.items():
        if name.startswith("attention") and layers == 2:
            assert found.changed, name


@pytest.mark.parametrize("layers", [1, 2])
def test_bidirectional_attention_is_permutation_invariant_at_any_depth(layers: int) -> None:
    """Without a causal mask the first layer does not know how many tokens came before."""
    assert TABLE["two-way-attention", layers].sees == "all, but no order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "name", [name for name in LAYERS if name not in ("attention", "two-way-attention", *POINTWISE)]
)
def test_recurrent_convolutional_and_state_space_layers_are_order_sensitive(name: str, layers: int) -> None:
    """Well above the threshold. Catches a minGRU without decay, which sums."""
    assert TABLE[name, layers].shuffled > 1000 * TOLERANCE
    assert TABLE[name, layers].sees == "order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_layers_depend_on_the_last_token_only(name: str, layers: int) -> None:
    """Up to rounding: experts batch rows by their routing."""
    assert max(TABLE[name, layers].shuffled, TABLE[name, layers].replaced) < 1e-14
    assert TABLE[name, layers].sees == "only the last token"


def test_every_layer_is_in_the_table_once_and_twice() -> None:
    assert {(name, layers) for name in LAYERS for layers in (1, 2)} <= TABLE.keys()


def test_a_seed_is_reproducible_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    found = order_sensitivity("gru", [], [("gru", {})])
    assert isinstance(found, OrderSensitivity)
    assert found == TABLE["gru", 1]
    assert torch.equal(torch.get_rng_state(), before)
