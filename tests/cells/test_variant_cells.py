"""The cells beside the classical three against their equations, written out by hand."""

import pytest
import torch
from test_cells import cell_of, numbers

from elman.cells import CELLS, Cell
from elman.cells.lstm import LSTMState
from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.ops import taps


def one_step(cell: Cell, x: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The new state of a single row; that the output is its first part too."""
    rows = [part[None] for part in state]
    output, new = cell.step(cell.drive(x[None]), LSTMState(*rows) if len(rows) == 2 else rows[0])
    parts = new if isinstance(new, tuple) else (new,)
    assert torch.equal(output, parts[0])
    return tuple(part[0] for part in parts)


def test_the_bare_update_gate_by_hand() -> None:
    """Catches: update and candidate exchanged; kept and new shares exchanged."""
    cell = cell_of("gated")
    n, x, h = numbers(cell), torch.randn(3), torch.randn(4)
    z, g = (n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h).split(4)
    torch.testing.assert_close(one_step(cell, x, h), (torch.sigmoid(z) * h + (1 - torch.sigmoid(z)) * torch.tanh(g),))


def test_the_residual_update_by_hand_and_that_it_grows() -> None:
    cell = cell_of("residual")
    n, x, h = numbers(cell), torch.randn(3), torch.randn(4)
    change = torch.tanh(n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h)
    torch.testing.assert_close(one_step(cell, x, h), (h + change,))
    far = LAYERS["residual"](cell.config, 3)(torch.ones(1, 100, 3))[0].abs()
    assert far[:, -1].max() > 20


def test_the_antisymmetric_residual_update_by_hand_and_that_it_stays() -> None:
    """Catches: damping with the wrong sign."""
    cell = cell_of("residual", form="antisymmetric", damping=0.5)
    n, x, h = numbers(cell), torch.randn(3), torch.randn(4)
    past = n["from_past.weight"] - n["from_past.weight"].T - 0.5 * torch.eye(4)
    torch.testing.assert_close(
        one_step(cell, x, h), (h + torch.tanh(n["from_input.weight"] @ x + n["from_input.bias"] + past @ h),)
    )
    layer = LAYERS["residual"](cell.config, 3)
    torch.nn.init.eye_(layer.cell.from_past.weight)  # which would feed every unit's growth, if it were free
    assert layer(torch.ones(1, 100, 3))[0].abs().max() < 5


def test_coupled_gates_by_hand() -> None:
    """Catches: the input gate of its own parts."""
    cell = cell_of("coupled")
    n, x, h, c = numbers(cell), torch.randn(3), torch.randn(4), torch.randn(4)
    f, g, o = (n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h).split(4)
    memory = torch.sigmoid(f) * c + (1 - torch.sigmoid(f)) * torch.tanh(g)
    torch.testing.assert_close(one_step(cell, x, h, c), (torch.sigmoid(o) * torch.tanh(memory), memory))


def test_coupled_gates_are_an_lstm_whose_input_gate_mirrors_the_forget_gate() -> None:
    coupled, lstm = cell_of("coupled"), cell_of("lstm")
    for ours, theirs in ((coupled.from_input.weight, lstm.from_input.weight), *_bias_and_past(coupled, lstm)):
        keep, candidate, show = ours.detach().split(4)
        theirs.data = torch.cat([-keep, keep, candidate, show])
    x, h, c = torch.randn(3), torch.randn(4), torch.randn(4)
    torch.testing.assert_close(one_step(coupled, x, h, c), one_step(lstm, x, h, c))


def _bias_and_past(one: Cell, two: Cell) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(one.from_input.bias, two.from_input.bias), (one.from_past.weight, two.from_past.weight)]


@pytest.mark.parametrize("form", ["diagonal", "full"])
def test_peephole_by_hand(form: str) -> None:
    """Catches: the output gate saw the old memory; input and forget peepholes exchanged."""
    cell = cell_of("peephole", form=form)
    n, x, h, c = numbers(cell), torch.randn(3), torch.randn(4), torch.randn(4)
    i, f, g, o = (n["from_input.weight"] @ x + n["from_input.bias"] + n["from_past.weight"] @ h).split(4)
    blocks = torch.cat([n["from_memory.weight"], n["from_new_memory.weight"]])
    if form == "diagonal":
        assert blocks.shape == (3, 4)
        pi, pf, po = (torch.diag(row) for row in blocks)
    else:
        assert blocks.shape == (12, 4)
        pi, pf, po = blocks.split(4)
    memory = torch.sigmoid(f + pf @ c) * c + torch.sigmoid(i + pi @ c) * torch.tanh(g)
    torch.testing.assert_close(one_step(cell, x, h, c), (torch.sigmoid(o + po @ memory) * torch.tanh(memory), memory))


@pytest.mark.parametrize("form", ["diagonal", "full"])
def test_without_sight_a_peephole_lstm_is_an_lstm(form: str) -> None:
    peephole, lstm = LAYERS["peephole"], LAYERS["lstm"]
    one = peephole(peephole.Config(hidden_size=4, form=form), 3)
    two = lstm(lstm.Config(hidden_size=4), 3)
    for name, parameter in one.named_parameters():
        if "memory" in name:
            parameter.data.zero_()
    two.load_state_dict(one.state_dict(), strict=False)
    x = torch.randn(2, 6, 3)
    torch.testing.assert_close(one(x), two(x))
    assert one.explain(2, 6).endswith("no vendor kernel supports peepholes")


def test_full_peepholes_drop_their_weights_too() -> None:
    cell = cell_of("peephole", hidden_size=32, form="full", weight_dropout=0.5)
    with cell.dropping():
        assert all((p.weight_in_use == 0).any() for p in (cell.from_past, cell.from_memory, cell.from_new_memory))


def test_layernorm_lstm_by_hand() -> None:
    """Catches: one norm over the sum of both products; the memory itself normed and carried on."""
    cell = cell_of("layernorm-lstm")
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    n, x, h, c = numbers(cell), torch.randn(3), torch.randn(4), torch.randn(4)
    driven = _norm(n["from_input.weight"] @ x) * n["input_norm.weight"] + n["input_norm.bias"]
    i, f, g, o = (driven + _norm(n["from_past.weight"] @ h) * n["past_norm.weight"]).split(4)
    memory = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    shown = _norm(memory) * n["memory_norm.weight"] + n["memory_norm.bias"]
    torch.testing.assert_close(one_step(cell, x, h, c), (torch.sigmoid(o) * torch.tanh(shown), memory))


def _norm(value: torch.Tensor) -> torch.Tensor:
    return (value - value.mean()) / (value.var(unbiased=False) + 1e-5).sqrt()


def test_layernorm_lstm_does_not_feel_the_scale_of_its_weights() -> None:
    cell = cell_of("layernorm-lstm", input_size=16, hidden_size=16).double()
    x, h, c = (torch.randn(16, dtype=torch.float64) * 10 for _ in range(3))
    before = one_step(cell, x, h, c)
    with torch.no_grad():
        cell.from_input.weight *= 7
        cell.from_past.weight *= 0.5
    torch.testing.assert_close(one_step(cell, x, h, c), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "bias", "forget"),
    [
        ("coupled", "from_input.bias", slice(0, 4)),
        ("peephole", "from_input.bias", slice(4, 8)),
        ("layernorm-lstm", "input_norm.bias", slice(4, 8)),
    ],
)
def test_the_forget_bias_reaches_the_forget_gate_only(name: str, bias: str, forget: slice) -> None:
    plain, kept = (numbers(cell_of(name, forget_bias=value))[bias] for value in (0.0, 2.0))
    expected = torch.zeros_like(plain)
    expected[forget] = 2.0
    torch.testing.assert_close(kept - plain, expected)
    for value, share in ((50.0, 1.0), (-50.0, 0.0)):
        with taps.record("gate.forget") as recording:
            LAYERS[name](cell_of(name, forget_bias=value).config, 3)(torch.randn(1, 2, 3))
        torch.testing.assert_close(recording["gate.forget"], torch.full((1, 2, 4), share))


@pytest.mark.parametrize("name", ["coupled", "gated", "layernorm-lstm", "peephole", "residual"])
def test_the_layer_of_a_cell_tells_what_the_cell_tells(name: str) -> None:
    assert CELLS[name].__doc__ == LAYERS[name].__doc__
    assert CELLS[name].traits is LAYERS[name].traits is not None


def test_an_unknown_form_of_peephole_is_refused() -> None:
    with pytest.raises(ConfigError, match="'diagonal' or 'full'"):
        CELLS["peephole"].Config.make({"form": "half"})
