"""Order sensitivity of every registered layer."""

import pytest
import torch

from elman.inspection.labs.permutation import TOLERANCE, OrderSensitivity, order_sensitivity, permutation_table
from elman.layers import LAYERS
from elman.layers.feedforward import Pointwise
from elman.layers.positions import Positions

pytestmark = pytest.mark.xdist_group("permutation")  # one process computes the table
Table = dict[tuple[str, int], OrderSensitivity]
POINTWISE = [name for name in LAYERS if issubclass(LAYERS[name], Pointwise | Positions)]
ORDERED = [name for name in LAYERS if name not in ("attention", "two-way-attention", *POINTWISE)]


@pytest.fixture(scope="module")
def table() -> Table:
    return {(found.name, found.layers): found for found in permutation_table()}


def test_one_attention_layer_without_positions_is_permutation_invariant(table: Table) -> None:
    """Catches a causal mask that leaves out the first token."""
    found = table["attention", 1]
    assert found.shuffled < TOLERANCE
    assert (found.changed, found.sees) == (False, "all, but no order")


def test_two_attention_layers_or_positions_make_it_order_sensitive(table: Table) -> None:
    """Catches identical positions."""
    for name in ("rotary", "alibi", "learned positions", "sinusoidal positions"):
        assert table[f"attention, {name}", 1].changed
    for (name, layers), found in table.items():
        if name.startswith("attention") and layers == 2:
            assert found.changed, name


@pytest.mark.parametrize("layers", [1, 2])
def test_bidirectional_attention_is_permutation_invariant_at_any_depth(layers: int, table: Table) -> None:
    """Without a causal mask the first layer does not know how many tokens came before."""
    assert table["two-way-attention", layers].sees == "all, but no order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ORDERED)
def test_recurrent_convolutional_and_state_space_layers_are_order_sensitive(
    name: str, layers: int, table: Table
) -> None:
    """Well above the threshold. Catches a minGRU without decay, which sums."""
    assert table[name, layers].shuffled > 1000 * TOLERANCE
    assert table[name, layers].sees == "order"


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_layers_depend_on_the_last_token_only(name: str, layers: int, table: Table) -> None:
    """Up to rounding: experts batch rows by their routing."""
    assert max(table[name, layers].shuffled, table[name, layers].replaced) < 1e-14
    assert table[name, layers].sees == "only the last token"


def test_every_layer_is_in_the_table_once_and_twice(table: Table) -> None:
    assert {(name, layers) for name in LAYERS for layers in (1, 2)} <= table.keys()


def test_a_seed_is_reproducible_and_leaves_the_global_generator_alone(table: Table) -> None:
    before = torch.get_rng_state()
    found = order_sensitivity("gru", [], [("gru", {})])
    assert isinstance(found, OrderSensitivity)
    assert found == table["gru", 1]
    assert torch.equal(torch.get_rng_state(), before)
