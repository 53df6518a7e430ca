"""Newton iteration over the whole sequence: the reference's result with a certificate, or the sequential form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from elman import recurrence
from elman.cells import CELLS, Cell, PastProduct
from elman.errors import ConfigError
from elman.ops.state import tensors
from elman.recurrence import explain, newton, recur, using


def cell_of(name: str, seed: int = 0, scale: float = 1.0, size: int = 5) -> Cell:
    """With recurrent weights `scale` times as large: from some size on, states are chaotic."""
    torch.manual_seed(seed)
    cell = CELLS[name](CELLS[name].Config(hidden_size=size), 3).double()
    with torch.no_grad():
        cell.from_past.weight *= scale
    return cell


def everything(form: str, cell: Cell, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """Outputs, final state, gradients of input, initial state and parameters."""
    cell.zero_grad()
    x = x.clone().requires_grad_()
    initial = [part.detach().clone().add(0.3).requires_grad_() for _, part in tensors(cell.initial_state(len(x)))]
    with using(form):
        state = initial[0] if len(initial) == 1 else type(cell.initial_state(1))(*initial)
        outputs, final = recur(cell, x, state, lengths)
    if lengths is not None:
        outputs = outputs * (torch.arange(x.shape[1]) < lengths.unsqueeze(1)).unsqueeze(-1)
    finals = [part for _, part in tensors(final)]
    weights = torch.linspace(-1, 2, outputs.numel(), dtype=x.dtype).view(outputs.shape)
    ((outputs * weights).sum() + sum((part**2).sum() for part in finals)).backward()
    leaves = [x, *initial, *cell.parameters()]
    return [outputs.detach(), *(part.detach() for part in finals), *(leaf.grad.clone() for leaf in leaves)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
@given(
    batch=st.integers(1, 3),
    time=st.sampled_from([1, 2, 17, 40]),
    seed=st.integers(0, 99),
    scale=st.sampled_from([0.5, 1, 4]),
    ragged=st.booleans(),
)
def test_the_result_is_the_references_with_a_certificate_or_the_sequential_form_ran(
    name, batch, time, seed, scale, ragged
) -> None:
    """Catches: gradients of one step only."""
    cell, x = cell_of(name, seed, scale), torch.randn(batch, time, 3, dtype=torch.float64)
    lengths = torch.tensor([time // 2, 0, time])[:batch] if ragged else None
    found = everything("newton", cell, x, lengths)
    certificates = newton.latest()
    for mine, true in zip(found, everything("reference", cell, x, lengths), strict=True):
        assert (mine - true).abs().max() <= 1e-10 * true.abs().max().clamp(min=1)
    assert certificates["states"].holds or "the sequential form ran instead" in str(certificates["states"])
    assert ("gradients" in certificates) == certificates["states"].holds


@pytest.mark.parametrize(("name", "most"), [("rnn", 50), ("gru", 25), ("lstm", 35)])
def test_contracting_cells_need_far_fewer_iterations_than_steps(name: str, most: int) -> None:
    """Measured over three seeds, 300 steps: 33 to 45, 18 to 20, 27 to 32. Catches: slopes 0 (gru 62, lstm never; the
    rnn's diagonal is worth nothing); no slope of the hidden state by the memory (lstm 46 to 56)."""
    torch.manual_seed(1)
    x = torch.randn(2, 300, 3, dtype=torch.float64)
    everything("newton", cell_of(name, size=16, scale=0.7), x)
    certificates = newton.latest()
    assert certificates["states"].holds
    assert max(certificates["states"].iterations, certificates["gradients"].iterations) <= most


def test_a_diagonal_recurrent_matrix_needs_few_iterations() -> None:
    """Their slopes are exact: this is Newton's own method. Catches: the product's diagonal left out of the slopes."""
    cell, x = cell_of("rnn"), torch.randn(2, 200, 3, dtype=torch.float64)
    with torch.no_grad():
        cell.from_past.weight.copy_(0.9 * torch.eye(5))
    everything("newton", cell, x)
    assert newton.latest()["states"].iterations <= 10
    assert newton.latest()["gradients"].iterations <= 2


def test_it_is_exact_after_as_many_iterations_as_steps_even_if_chaotic() -> None:
    """As near as chaos lets two roundings be. Catches: slopes above 1 left as they are (overflow)."""
    cell, x = cell_of("gru", scale=20), torch.randn(2, 40, 3, dtype=torch.float64)
    found = everything("newton", cell, x)
    assert 20 < newton.latest()["states"].iterations <= 40
    for mine, true in zip(found, everything("reference", cell, x), strict=True):
        assert (mine - true).abs().max() <= 1e-6 * true.abs().max()


def test_without_a_certificate_the_sequential_form_runs_and_the_message_says_so() -> None:
    cell, x = cell_of("rnn", scale=20), torch.randn(2, 200, 3, dtype=torch.float64)
    found = everything("newton", cell, x)
    assert "after 64 iterations" in str(newton.latest()["states"])
    assert str(newton.latest()["states"]).endswith("the sequential form ran instead")
    torch.testing.assert_close(found, everything("auto", cell, x), rtol=0, atol=0)


class Strange(Cell):
    """A step that is not a function of its row alone, or a state that is no tensor of real numbers."""

    name = "strange"

    def __init__(self, how, start=None):
        super().__init__(Cell.Config(hidden_size=5), 3)
        self.from_input, self.from_past = nn.Linear(3, 5), PastProduct(5, 1)
        self.how, self.start = how, start

    def initial_state(self, batch):
        return self.start(self.zeros(batch)) if self.start else self.zeros(batch)

    def drive(self, x):
        return self.from_input(x)

    def step(self, drive, state):
        if self.start is None:
            new = torch.tanh(self.how(drive + self.from_past(state)))
            return new, new
        new = torch.tanh(drive + self.from_past(state[0]))
        return new, (new, state[1] + 1)


@pytest.mark.parametrize("how", [lambda x: x - x.mean(0), lambda x: x / (1 + float(x.detach().abs().max()))])
def test_a_step_that_mixes_rows_gets_no_certificate(how) -> None:
    """Catches: no step taken alone: positions became rows of one batch and were mixed, with a certificate."""
    torch.manual_seed(0)
    cell, x = Strange(how), torch.randn(4, 9, 3)
    found = everything("newton", cell, x)
    assert "the sequential form ran instead" in str(newton.latest()["states"])
    for mine, true in zip(found, everything("reference", cell, x), strict=True):
        torch.testing.assert_close(mine, true)


def test_a_state_may_be_a_plain_tuple_of_real_numbers() -> None:
    """Catches: a tuple called with its parts; slopes asked of whole numbers."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3)
    cell = Strange(None, lambda zeros: (zeros, zeros))
    results = []
    for form in ("newton", "reference"):
        with using(form):
            results.append(recur(cell, x, cell.initial_state(2)))
    torch.testing.assert_close(results[0], results[1])
    cell = Strange(None, lambda zeros: (zeros, zeros.long()))
    with using("newton"), pytest.raises(ConfigError, match="not real"):
        recur(cell, x, cell.initial_state(2))


def test_it_runs_only_on_request_and_not_in_half_precision() -> None:
    cell, x = cell_of("gru"), torch.zeros(2, 8, 3, dtype=torch.float64)
    assert "newton" in recurrence.forms_that_can_run(cell, x)
    assert not explain(cell, x).startswith("newton")
    with using("newton"):
        assert explain(cell, x) == "newton: all steps in parallel, by Newton iteration, as asked"
        with pytest.raises(ConfigError, match="half precision"):
            recur(cell.bfloat16(), x.bfloat16(), cell.initial_state(2))
    assert "norm" in newton.obstacle(CELLS["layernorm-lstm"](CELLS["layernorm-lstm"].Config(), 3), x, None)


class TwoWidths(Cell):
    """A state of whole width beside one number."""

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        return self.zeros(batch), self.zeros(batch)[:, :1]

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, self.hidden_size)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden = torch.tanh(drive + state[0] * state[1])
        return hidden, (hidden, state[1] + 1)


def test_parts_of_a_state_that_differ_in_width_are_an_obstacle() -> None:
    """Catches: they were multiplied by each other's slopes, and torch complained of shapes."""
    cell = TwoWidths(Cell.Config(hidden_size=4), 3)
    assert "differ in width" in str(newton.obstacle(cell, torch.randn(2, 5, 3), None))


def test_without_gradients_there_is_no_gradient_certificate() -> None:
    cell, x = cell_of("lstm"), torch.randn(2, 9, 3, dtype=torch.float64)
    with torch.no_grad(), using("newton"):
        outputs, _ = recur(cell, x, cell.initial_state(2))
    assert not outputs.requires_grad
    assert list(newton.latest()) == ["states"]
