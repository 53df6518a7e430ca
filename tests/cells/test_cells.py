"""The cells against their equations, their derivatives, and what they promise about starting values and precision."""

import math

import pytest
import torch
from torch import Tensor

from elman.cells import CELLS, Cell, PastProduct
from elman.cells.lstm import LSTMState
from elman.cells.rnn import INIT_SCALE
from elman.errors import ConfigError
from elman.ops.state import map_state, tensors

KINDS = [
    ("rnn", {}),
    ("rnn", {"nonlinearity": "relu"}),
    ("gru", {}),
    ("gru", {"reset": "before"}),
    ("lstm", {}),
    ("gated", {}),
    ("residual", {}),
    ("residual", {"form": "antisymmetric"}),
    ("coupled", {}),
    ("peephole", {}),
    ("peephole", {"form": "full"}),
    ("layernorm-lstm", {}),
]
kinds = pytest.mark.parametrize(("name", "settings"), KINDS)


def cell_of(name: str, input_size: int = 3, **settings) -> Cell:
    torch.manual_seed(0)
    return CELLS[name](CELLS[name].Config(**{"hidden_size": 4, **settings}), input_size)


def some_state(cell: Cell, batch: int) -> Tensor | LSTMState:
    return map_state(lambda part: torch.randn_like(part, requires_grad=True), cell.initial_state(batch))


@kinds
def test_the_derivatives_are_those_of_the_equation(name: str, settings: dict) -> None:
    cell = cell_of(name, **settings).double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    parts = [part for _, part in tensors(some_state(cell, 2))]
    form = cell.initial_state(2)
    names, weights = zip(*cell.named_parameters(), strict=True)

    def two_steps(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        state = rest[0] if isinstance(form, Tensor) else type(form)(*rest[: len(parts)])
        values = dict(zip(names, rest[len(parts) :], strict=True))
        return torch.func.functional_call(Twice(cell), {f"cell.{n}": v for n, v in values.items()}, (x, state))

    assert torch.autograd.gradcheck(two_steps, (x, *parts, *weights))


class Twice(torch.nn.Module):
    def __init__(self, cell: Cell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, state) -> tuple[Tensor, ...]:
        for _ in range(2):
            _, state = self.cell.step(self.cell.drive(x), state)
        return tuple(part for _, part in tensors(state))


def numbers(cell: Cell) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in cell.named_parameters()}


def test_rnn_by_hand() -> None:
    cell = cell_of("rnn")
    n, x, h = numbers(cell), torch.randn(3), torch.randn(4)
    expected = torch.tanh(n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h)
    torch.testing.assert_close(cell.step(cell.drive(x[None]), h[None])[1][0], expected)


@pytest.mark.parametrize("reset", ["after", "before"])
def test_gru_by_hand(reset: str) -> None:
    cell = cell_of("gru", reset=reset)
    n, x, h = numbers(cell), torch.randn(3), torch.randn(4)
    wr, wz, wn = n["from_input.weight"].split(4)
    br, bz, bn = n["from_input.bias"].split(4)
    ur, uz, *un = n["from_past.weight"].split(4)
    r = torch.sigmoid(wr @ x + br + ur @ h)
    z = torch.sigmoid(wz @ x + bz + uz @ h)
    past = r * (un[0] @ h + n["past_bias"]) if reset == "after" else n["from_reset_past.weight"] @ (r * h)
    expected = z * h + (1 - z) * torch.tanh(wn @ x + bn + past)
    torch.testing.assert_close(cell.step(cell.drive(x[None]), h[None])[1][0], expected)


def test_lstm_by_hand() -> None:
    cell = cell_of("lstm")
    n, x, h, c = numbers(cell), torch.randn(3), torch.randn(4), torch.randn(4)
    i, f, g, o = (n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h).split(4)
    memory = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    _, state = cell.step(cell.drive(x[None]), LSTMState(h[None], c[None]))
    torch.testing.assert_close(state.memory[0], memory)
    torch.testing.assert_close(state.hidden[0], torch.sigmoid(o) * torch.tanh(memory))


@kinds
def test_all_parameters_start_within_the_uniform_bounds(name: str, settings: dict) -> None:
    if "forget_bias" in CELLS[name].Config.model_fields:
        settings = {**settings, "forget_bias": 0.0}
    cell = cell_of(name, hidden_size=64, **settings)
    for part, parameter in cell.named_parameters():
        if "norm" in part:  # a norm starts as one that changes nothing
            assert torch.equal(parameter, torch.full_like(parameter, "weight" in part))
            continue
        share = INIT_SCALE if (name, part) == ("residual", "from_past.weight") else 1
        assert 0.7 * share / math.sqrt(64) < parameter.abs().max() <= share / math.sqrt(64)


@kinds
def test_orthogonal_blocks_keep_the_length_of_the_state(name: str, settings: dict) -> None:
    cell = cell_of(name, hidden_size=8, orthogonal=True, **settings)
    products = [module for module in cell.modules() if isinstance(module, PastProduct)]
    blocks = [block for product in products for block in product.weight.detach().split(8)]
    assert blocks
    for block in blocks:
        torch.testing.assert_close(block @ block.T, torch.eye(8), atol=1e-5, rtol=0)


def test_the_forget_bias_is_added_to_the_forget_gate_only() -> None:
    plain, kept = cell_of("lstm", forget_bias=0.0), cell_of("lstm", forget_bias=2.0)
    difference = kept.from_input.bias - plain.from_input.bias
    torch.testing.assert_close(difference, torch.tensor([0.0] * 4 + [2.0] * 4 + [0.0] * 8))


@kinds
def test_without_bias_there_is_none(name: str, settings: dict) -> None:
    cell = cell_of(name, bias=False, **settings)
    assert all(parameter.dim() == 2 or "norm.weight" in n for n, parameter in cell.named_parameters())
    assert not torch.stack(
        [part for _, part in tensors(cell.step(cell.drive(torch.zeros(1, 3)), cell.initial_state(1))[1])]
    ).any()


def test_a_width_of_zero_is_the_width_of_the_input() -> None:
    assert cell_of("gru", input_size=5, hidden_size=0).hidden_size == 5


@kinds
def test_the_state_stays_in_float32_under_autocast(name: str, settings: dict) -> None:
    """Catches: the simple network's state was what tanh gave, in bfloat16."""
    cell = cell_of(name, **settings)
    state = cell.initial_state(2)
    with torch.autocast("cpu", torch.bfloat16):
        drive = cell.drive(torch.randn(2, 3))
        assert drive.dtype == torch.bfloat16, "the products are in half precision"
        for _ in range(2):
            _, state = cell.step(drive, state)
    assert {part.dtype for _, part in tensors(state)} == {torch.float32}


@kinds
def test_a_cell_in_bfloat16_carries_its_state_in_float32(name: str, settings: dict) -> None:
    cell = cell_of(name, **settings).bfloat16()
    _, state = cell.step(cell.drive(torch.randn(2, 3).bfloat16()), cell.initial_state(2))
    assert {part.dtype for _, part in tensors(state)} == {torch.float32}


def test_dropped_weights_come_back_after_an_exception() -> None:
    """Catches: no `finally`."""
    cell = cell_of("lstm", weight_dropout=0.5)
    with pytest.raises(ZeroDivisionError), cell.dropping():
        raise ZeroDivisionError
    assert cell.from_past.weight_in_use is cell.from_past.weight


def test_weights_are_dropped_in_training_only_and_scaled_up() -> None:
    cell = cell_of("gru", hidden_size=64, weight_dropout=0.25)
    with cell.dropping():
        dropped = cell.from_past.weight_in_use == 0
        assert 0.2 < dropped.float().mean() < 0.3
        torch.testing.assert_close(cell.from_past.weight_in_use[~dropped], cell.from_past.weight[~dropped] / 0.75)
    with cell.eval().dropping():
        assert cell.from_past.weight_in_use is cell.from_past.weight


def test_weight_dropout_without_a_past_product_is_an_error() -> None:
    class Sum(Cell):
        name = "sum"

        def __init__(self, config: Cell.Config, input_size: int):
            super().__init__(config, input_size)
            self.from_input = torch.nn.Linear(input_size, self.hidden_size)

        def drive(self, x: Tensor) -> Tensor:
            return self.from_input(x)

        def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return state + drive, state + drive

    with pytest.raises(ConfigError, match="no PastProduct"), Sum(Cell.Config(weight_dropout=0.1), 3).dropping():
        pass


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"weight_dropout": 1.0}, {"hidden_size": -1}, {"reset": "never"}):
        with pytest.raises(ConfigError):
            CELLS["gru"].Config.make(wrong)
