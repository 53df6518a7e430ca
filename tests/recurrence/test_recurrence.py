"""The dispatcher: which form runs, what it says about it, and what happens when a form is asked for."""

import pytest
import torch

from elman.cells import CELLS, Cell
from elman.errors import ConfigError, UnknownName
from elman.ops import taps
from elman.recurrence import FORMS, choose, explain, recur, using


def cell_of(name: str, **settings) -> Cell:
    return CELLS[name](CELLS[name].Config(hidden_size=4, **settings), 3)


X = torch.zeros(2, 8, 3)
LITTLE = "the sequence is too short to be worth compiling"


def test_long_sequences_take_the_vendors_kernel() -> None:
    assert explain(cell_of("lstm"), X) == "vendor: oneDNN LSTM"
    assert explain(cell_of("gru"), X) == "vendor: torch's C++ GRU"
    assert explain(cell_of("lstm").double(), X.double()) == "vendor: torch's C++ LSTM"


def test_explain_names_the_reason_for_the_reference() -> None:
    lstm = cell_of("lstm")
    with taps.record("*"):
        assert explain(lstm, X) == "reference: a recorder is listening"
        lstm.step(lstm.drive(X[:, 0]), lstm.initial_state(2))
    before = cell_of("gru", reset="before")
    assert explain(before, X) == f"reference: {LITTLE}; gru with reset before the product has no vendor kernel"
    assert explain(lstm, X[:, :1]) == f"reference: {LITTLE}; below 4 steps the plain loop is faster on a CPU"
    assert (
        explain(lstm, X, torch.tensor([8, 5]))
        == f"reference: {LITTLE}; rows of unequal length are faster in the plain loop on a CPU"
    )
    assert explain(lstm, X[:0]) == "reference: the batch is empty"
    assert "meta" in explain(lstm, X.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert "float32" in explain(lstm, X)


class Broken(Cell):
    name = "broken"

    def __init__(self, how, form=lambda zeros: zeros):
        super().__init__(Cell.Config(hidden_size=4), 3)
        self.from_input, self.step, self.form = torch.nn.Linear(3, 4), how, form

    def initial_state(self, batch):
        return self.form(self.zeros(batch))

    def drive(self, x):
        return self.from_input(x)

    def step(self, drive, state):  # replaced
        raise NotImplementedError


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (Broken(lambda drive, state: drive + state), "returns a Tensor, not its output and the new state"),
        (Broken(lambda drive, state: (state.add_(drive), state)), "modifies its state in place"),
        (
            Broken(lambda drive, state: (drive, state[:, :3])),
            r"the shapes of its state from \[\(2, 4\)\] to \[\(2, 3\)\]",
        ),
        (Broken(lambda drive, state: (drive, (state, state))), "changes the shapes of its state"),
        (Broken(lambda drive, state: (drive, state), lambda zeros: {"a": zeros}), "a tuple of states, not a dict"),
    ],
)
def test_a_step_that_breaks_its_contract_is_an_error(cell: Cell, reason: str) -> None:
    """Catches: no look at the first step: a state changed in place gave the last output at every position."""
    with torch.no_grad(), pytest.raises(ConfigError, match=reason):
        recur(cell, X, cell.initial_state(2))


def test_full_lengths_are_no_lengths() -> None:
    assert choose(cell_of("lstm"), X, torch.tensor([8, 8])).form == "vendor"


@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if form.device in (None, "cpu")])
def test_a_requested_form_runs(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def watched(name, run):
        return lambda *given: (taken.append(name), run(*given))[1]

    for name, one in list(FORMS.items()):
        monkeypatch.setitem(FORMS, name, one._replace(run=watched(name, one.run)))
    with using(form):
        assert explain(cell_of("rnn"), X[:, :1]).endswith("as asked")
        recur(cell_of("rnn"), X[:, :1], torch.zeros(2, 4))
    recur(cell_of("rnn"), X, torch.zeros(2, 4))
    assert taken == [form, "vendor"]


def test_requesting_an_unsupported_form_is_an_error_with_the_reason() -> None:
    before = cell_of("gru", reset="before")
    with using("vendor"), pytest.raises(ConfigError, match=r"vendor form .* reset before the product"):
        recur(before, X, before.initial_state(2))
    with pytest.raises(UnknownName, match="did you mean 'vendor'"), using("vender"):
        pass


def test_a_request_ends_with_its_block() -> None:
    lstm = cell_of("lstm")
    with using("reference"):
        with pytest.raises(ZeroDivisionError), using("vendor"):
            raise ZeroDivisionError
        assert choose(lstm, X).form == "reference"
        with using("auto"):
            assert choose(lstm, X).form == "vendor"
    assert choose(lstm, X).form == "vendor"


def test_under_autocast_a_sequence_gives_a_state_in_float32() -> None:
    for name in CELLS:
        cell = cell_of(name)
        with torch.autocast("cpu", torch.bfloat16):
            _, state = recur(cell, X, cell.initial_state(2))
        parts = [state] if isinstance(state, torch.Tensor) else state
        assert {part.dtype for part in parts} == {torch.float32}


def test_an_empty_batch_and_an_empty_sequence_have_their_shapes() -> None:
    cell = cell_of("lstm")
    for batch, time in ((0, 5), (2, 0), (0, 0)):
        outputs, state = recur(cell, torch.zeros(batch, time, 3), cell.initial_state(batch))
        assert outputs.shape == (batch, time, 4)
        assert state.memory.shape == (batch, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lengths", [None, [8, 0, 3]])
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_on_a_gpu_half_precision_keeps_the_state_in_float32(name: str, lengths, kind: torch.dtype) -> None:
    torch.manual_seed(0)
    cell = cell_of(name).cuda()
    x = torch.randn(3, 8, 3, device="cuda", requires_grad=True)
    lengths = lengths and torch.tensor(lengths, device="cuda")
    assert explain(cell, x, lengths) == f"vendor: cuDNN {name.upper()}"
    expected, _ = recur(cell, x, cell.initial_state(3), lengths)
    with torch.autocast("cuda", kind):
        outputs, state = recur(cell, x, cell.initial_state(3), lengths)
    outputs.float().sum().backward()
    assert outputs.dtype == kind
    assert torch.isfinite(x.grad).all()
    assert {part.dtype for part in ([state] if isinstance(state, torch.Tensor) else state)} == {torch.float32}
    torch.testing.assert_close(outputs.float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("lengths", [None, [8, 0, 3]])
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_on_a_gpu_the_vendors_kernel_equals_the_reference(name: str, lengths) -> None:
    torch.manual_seed(0)
    cell = cell_of(name).double().cuda()
    lengths = lengths and torch.tensor(lengths, device="cuda")
    found = []
    for form in ("vendor", "reference"):
        x = torch.linspace(-1, 1, 72, device="cuda", dtype=torch.float64).view(3, 8, 3).requires_grad_()
        cell.zero_grad()
        with using(form):
            outputs, state = recur(cell, x, cell.initial_state(3), lengths)
        if lengths is not None:
            outputs = outputs * (torch.arange(8, device="cuda") < lengths.unsqueeze(1)).unsqueeze(-1)
        parts = [state] if isinstance(state, torch.Tensor) else list(state)
        sum((part**2).sum() for part in [outputs, *parts]).backward()
        found.append([outputs, *parts, x.grad, *(p.grad.clone() for p in cell.parameters())])
    torch.testing.assert_close(*found, atol=1e-10, rtol=1e-10)
