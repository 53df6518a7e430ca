"""Costs and state sizes in the traits of layers, compared with counts while they run."""

from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from elman.cells import CELLS
from elman.inspection.catalog import families
from elman.inspection.cost import LENGTH, WIDTH, count, evaluate, measure, standard, state_size, stated
from elman.layers import LAYERS
from elman.layers.feedforward import FeedForward
from elman.models import NGram
from elman.recurrence import explain, using
from elman.registry import Traits

SIZES = [(48, 64, 64), (32, 96, 192)]  # input, width, length in whole chunks: each grows in its own way


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_has_complete_traits(name: str) -> None:
    """Catches the traits taken from a cell, and with an empty limitation."""
    where, kind = ("cell", CELLS[name]) if name in CELLS else ("layer", LAYERS[name])
    traits: Any = kind.traits
    assert traits is not None, (
        f"{where} {name!r} has no traits; give {kind.__module__}.{kind.__name__} "
        "`traits: ClassVar = Traits(idea=..., limitation=..., training=..., stepping=..., state=...)`, "
        "as CONTRIBUTING.md shows it"
    )
    for field, text in traits._asdict().items():
        assert text.strip(), f"{where} {name!r}: traits.{field} is empty"


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_cost_formulas_equal_the_counted_multiplications(name: str, sizes: tuple[int, int, int]) -> None:
    """Catches a gate forgotten in a formula, with `input` for `width`, with a state twice as large, and with
    attention that does not grow with the length."""
    input_size, width, length = sizes
    torch.manual_seed(0)
    layer = standard(name, width, input_size)
    claimed, counted = stated(layer, length), measure(layer, length)
    assert claimed.state == counted.state, f"traits.state of {name}"
    assert claimed.training == pytest.approx(counted.training, rel=0.1), f"traits.training of {name}"
    if counted.stepping is None:
        assert claimed.stepping is None
    else:
        assert claimed.stepping == pytest.approx(counted.stepping, rel=0.1), f"traits.stepping of {name}"


@pytest.mark.parametrize("order", [1, 3, 5])
def test_the_state_of_an_ngram_model_has_its_stated_size(order: int) -> None:
    model = NGram(NGram.Config(order=order), vocab_size=7)
    assert evaluate(model, "state") == state_size(model) == order - 1


def test_settings_change_what_formulas_give() -> None:
    """Catches `context` for `reach`."""
    kind = LAYERS["attention"]
    layer: Any = kind(kind.Config.make({"num_heads": 4, "kv_heads": 2, "context": 32, "window": 8}), 32)
    claimed, counted = stated(layer, 8), measure(layer, 8)
    assert claimed.state == counted.state == 2 * 7 * 2 * 8 + 1
    assert claimed.training == pytest.approx(counted.training, rel=0.1)


def test_products_of_matrices_of_numbers_and_of_complex_numbers_are_counted() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert count(lambda: a @ b) == 3 * 4 * 5
    assert count(lambda: a * a) == count(lambda: a / 2) == count(lambda: torch.addcmul(a, a, a)) == 12
    turned = torch.randn(6, dtype=torch.complex64)
    assert count(lambda: turned * turned) == 4 * 6
    assert count(lambda: a + a) == 0


@pytest.mark.parametrize("groups", [1, 4])
def test_a_convolution_costs_twice_as_much_backward(groups: int) -> None:
    """Catches torch's own count, which multiplies by channels that are apart."""
    layer, x = nn.Conv1d(8, 8, 3, groups=groups), torch.randn(2, 8, 10, requires_grad=True)
    forward = count(lambda: layer(x))
    assert forward == 2 * 8 * 8 * 3 * 8 // groups
    assert count(lambda: layer(x).sum().backward()) == 3 * forward


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2·width² − 3·inner_size; a remark", 2 * 9 - 3 * 12), ("max(width, 5)/2", 2.5), ("log2(8)·width³", 81)],
)
def test_a_formula_is_read_as_it_is_written(formula: str, value: float) -> None:
    assert evaluate(_claiming(formula), "state") == value


@pytest.mark.parametrize(
    ("formula", "complaint"),
    [
        ("2·breadth", "traits.state uses 'breadth'"),
        ("print(1)", "not Call"),
        ("width if width else 1", "not IfExp"),
    ],
)
def test_a_formula_that_cannot_be_read_says_so(formula: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        evaluate(_claiming(formula), "state")


def _claiming(formula: str) -> FeedForward:
    class Claiming(FeedForward):
        traits: ClassVar = Traits("", "", "0", "0", formula)

    return Claiming(FeedForward.Config(), 3)


def test_all_families_are_in_the_table_with_their_numbers() -> None:
    found = families()
    assert found.keys() == {*LAYERS, "ngram"}
    assert found["lstm"].cost == (12 * 2 * WIDTH**2, 4 * 2 * WIDTH**2, 2 * WIDTH, 4 * WIDTH * (2 * WIDTH + 1))
    assert found["attention"].cost.stepping == 4 * WIDTH**2 + 2 * LENGTH * WIDTH
    assert found["bidirectional"].plain()["stepping"] == {"formula": "none; it has no step form", "number": None}
    assert found["gru"].explain("state") == "256 = width"
    assert found["ngram"].cost.parameters is None, "counts are no parameters"
    assert [family.kind for family in map(found.get, ("gru", "s4", "ngram"))] == ["cell", "layer", "model"]


def test_a_counter_sees_the_products_of_sequences_that_would_be_compiled() -> None:
    """Catches: compiled steps, of which torch knows nothing."""
    layer: Any = LAYERS["rnn"](LAYERS["rnn"].Config(hidden_size=64), 64).double()
    x = torch.randn(32, 20, 64, dtype=torch.float64, requires_grad=True)
    assert "C++" in explain(layer.cell, x)
    counted = count(lambda: layer(x)[0].sum().backward())
    with using("reference"):
        assert counted == count(lambda: layer(x)[0].sum().backward())
