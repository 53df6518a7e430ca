"""The compiled form caches a plan between calls; any change of the cell must reach the next call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of
from cell_equivalence import assert_same, carried, results
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

from elman.cells import Cell
from elman.compiler.cell_program import first_parameter
from elman.compiler.cpu import runtime
from elman.ops import taps
from elman.ops.lookup import Lookup
from elman.ops.state import leaves, with_leaves
from elman.recurrence import compiled_cpp, recur, using


def cell(name: str = "gru") -> Cell:
    torch.manual_seed(0)
    return cell_of(name, hidden_size=6).double()


def check(cell: Cell, batch: int = 3, time: int = 5) -> list[Tensor | None]:
    """Both forms say the same; what they say."""
    kind = first_parameter(cell).dtype
    torch.manual_seed(1)
    x, state, found = torch.randn(batch, time, 3, dtype=kind), carried(cell, batch), []
    for form in ("compiled", "reference"):
        with using(form):
            found.append(results(recur, cell, x, state))
    assert_same(*found, tolerance=1e-10 if kind == torch.float64 else 2e-5)
    return found[0]


def product(cell: Cell) -> Any:
    made = compiled_cpp.plan(cell)
    assert isinstance(made, compiled_cpp.SequencePlan)
    x = torch.zeros(1, 1, 3, dtype=made.dtype)
    return made.projection.operands(cell, x, made.dtype)


def changed(cell: Cell, change: Callable[[], Any]) -> None:
    """The change is heard, and both forms still say the same."""
    before = check(cell)[0]
    change()
    after = check(cell)[0]
    assert before is not None
    assert after is not None
    assert not torch.equal(before, after)


@pytest.mark.parametrize("name", ["from_input", "from_past"])
def test_new_weights_take_effect(name: str) -> None:
    """Catches: panels kept from call to call; the nn.Linear's weight kept in the plan."""
    one = cell()
    part = getattr(one, name)
    changed(one, lambda: part.weight.data.mul_(2))
    changed(one, lambda: setattr(part, "weight", nn.Parameter(torch.randn_like(part.weight))))
    changed(one, lambda: setattr(part, "weight", nn.Parameter(torch.randn_like(part.weight.t()).t())))


def test_new_shapes_and_dtypes_take_effect() -> None:
    one = cell()
    for batch, time in ((3, 5), (1, 5), (3, 1), (7, 9), (3, 5)):
        check(one, batch, time)
    for kind in (torch.float32, torch.float64):
        check(one.to(kind))


@pytest.mark.parametrize("name", ["lstm", "peephole"])
def test_requires_grad_may_change(name: str) -> None:
    """Catches: what one needs taken for what its neighbour needs."""
    one = cell(name)
    for still in ("from_input.weight", "from_input.bias", "from_past.weight"):
        check(one)
        parameter = one.get_parameter(still)
        parameter.requires_grad_(False)
        check(one)
        assert parameter.grad is None
    for parameter in one.parameters():
        parameter.requires_grad_(True)
    assert all(parameter.grad is not None for parameter in one.parameters() if check(one))


def test_without_grad_mode_there_is_no_graph() -> None:
    one = cell()
    x, state = torch.randn(2, 4, 3, dtype=torch.float64), one.initial_state(2)
    with using("compiled"):
        whole = recur(one, x, state)[0]
        with torch.no_grad():
            assert recur(one, x.requires_grad_(), state)[0].grad_fn is None
        for parameter in one.parameters():
            parameter.requires_grad_(False)
        alone = recur(one, x.detach(), state)[0]
    assert not alone.requires_grad
    torch.testing.assert_close(alone, whole, rtol=0, atol=0)


def test_hooks_of_the_input_projection_run() -> None:
    """Catches: the nn.Linear's product made without asking who watches it."""
    one = cell()
    linear = one.from_input
    assert product(one) is not None

    def twice(module: Any, given: Any, result: Tensor) -> Tensor:
        return result * 2 if module is linear else result

    for register in (lambda: linear.register_forward_hook(twice), lambda: register_module_forward_hook(twice)):
        before = check(one)[0]
        handle = register()
        assert product(one) is None
        changed_by_hook = check(one)[0]
        handle.remove()
        after = check(one)[0]
        assert before is not None
        assert after is not None
        assert changed_by_hook is not None
        assert torch.equal(before, after)
        assert not torch.equal(before, changed_by_hook)
    handle = linear.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    assert product(one) is None
    check(one)
    handle.remove()
    assert product(one) is not None


class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def test_a_replaced_input_projection_takes_effect() -> None:
    one = cell()
    changed(one, lambda: setattr(one, "from_input", nn.Linear(3, 18).double()))
    assert product(one) is not None
    changed(one, lambda: setattr(one, "from_input", nn.Sequential(nn.Linear(3, 18), nn.Tanh()).double()))
    assert product(one) is None
    one = cell()
    changed(one, lambda: setattr(one, "from_input", Twice(3, 18).double()))
    assert product(one) is None
    one = cell()
    parametrizations.weight_norm(one.from_input)
    assert product(one) is None
    check(one)
    one = cell()
    linear = one.from_input
    changed(one, lambda: setattr(one, "drive", lambda x: linear(x) + 1))
    assert product(one) is None


def test_only_a_plain_linear_is_fused() -> None:
    assert product(cell("rnn")) is not None
    assert product(cell("layernorm-lstm")) is None
    assert product(cell("invented")) is None


def test_an_input_of_the_wrong_width_or_dtype_is_an_error() -> None:
    """Catches: no look at its width, which reads behind its end."""
    one = cell()
    for x in (torch.zeros(2, 3, 4, dtype=torch.float64), torch.zeros(2, 3, 3)):
        with using("compiled"), pytest.raises(RuntimeError):
            recur(one, x, one.initial_state(2))


def test_a_recorder_sees_every_step() -> None:
    one = cell()
    check(one)
    x, state = torch.randn(2, 4, 3, dtype=torch.float64), one.initial_state(2)
    with taps.record("*") as recording:
        recur(one, x, state)
    assert recording["gate.reset"].shape == (2, 4, 6)
    check(one)


@pytest.mark.parametrize("wanted", ["outputs", "state", "both"])
def test_missing_output_gradients_are_zero(wanted: str) -> None:
    """Catches: memory that nobody wrote in their place."""
    one, found = cell("lstm"), []
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    leaves = [x, *one.parameters()]
    for form in ("compiled", "reference"):
        with using(form):
            outputs, state = recur(one, x, one.initial_state(2))
        loss = sum(
            part.square().sum() for part in {"outputs": [outputs], "state": state, "both": [outputs, *state]}[wanted]
        )
        found.append(list(torch.autograd.grad(loss, leaves)))
    assert_same(*found, tolerance=1e-10)


def test_double_backward_is_an_error() -> None:
    one = cell()
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    with using("compiled"):
        outputs, _ = recur(one, x, one.initial_state(2))
    (slope,) = torch.autograd.grad(outputs.square().sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("name", ["gru", "peephole", "invented", "residual"])
def test_large_matmuls_equal_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cell(name)
    found = [check(one)]
    monkeypatch.setattr(runtime, "MAX_WORK", 0)
    assert_same(found[0], check(one), tolerance=1e-12)


@given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 70), st.booleans(), st.booleans())
def test_small_gemms_equal_torch(rows: int, inner: int, columns: int, across: bool, more: bool) -> None:
    """Catches: whole vectors that reach behind a row; what was there before forgotten."""
    torch.manual_seed(rows)
    x = torch.randn(inner, rows).double().t() if across else torch.randn(rows, inner).double()
    w, y = torch.randn(inner, columns).double(), torch.randn(rows + 1, columns + 3).double()
    expected = y.clone()
    expected[:rows, :columns] = x @ w + (y[:rows, :columns] if more else 0)
    job = [x.data_ptr(), *x.stride(), rows, w.data_ptr(), *w.stride(), columns, inner, y.data_ptr(), columns + 3]
    runtime.run_gemms([*job, runtime.ACCUMULATE if more else runtime.OVERWRITE], torch.float64)
    torch.testing.assert_close(y, expected)


def test_the_first_parameter_is_the_first() -> None:
    module = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Tanh(), nn.Linear(2, 2)), nn.Linear(1, 1))
    for one in (module, cell("peephole"), cell("layernorm-lstm")):
        assert first_parameter(one) is next(one.parameters())


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("state", ["initial", "carried"])
@pytest.mark.parametrize("lengths", [None, [5, 0, 2]])
def test_rows_of_a_table_give_what_the_sequence_gives(name: str, settings: Any, state: str, lengths: Any) -> None:
    """Catches another row read, the zeros of an initial state taken for granted, and padding that is a step."""
    torch.manual_seed(0)
    one = cell_of(name, settings, hidden_size=6).double()
    table, rows = (
        torch.randn(4, 3, dtype=torch.float64),
        torch.tensor([[3, 0, 0, 2, 1], [1, 1, 3, 3, 0], [0, 2, 2, 1, 3]]),
    )
    first = one.initial_state(3)
    if state == "carried":
        first = with_leaves(first, carried(one, 3))
    ends = None if lengths is None else torch.tensor(lengths)
    with torch.no_grad():
        found, last = recur(one, Lookup(table, rows), first, ends)
        with using("reference"):
            wanted, final = recur(one, table[rows], first, ends)
    for place, length in enumerate(lengths or [5, 5, 5]):
        torch.testing.assert_close(found[place, :length], wanted[place, :length], atol=1e-10, rtol=0)
    for mine, right in zip(leaves(last), leaves(final), strict=True):
        torch.testing.assert_close(mine, right, atol=1e-10, rtol=0)


def test_a_table_is_read_by_compiled_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a table that is made a sequence before its projection, or read where another form was asked for."""
    one, seen = cell("lstm"), []
    monkeypatch.setattr(compiled_cpp, "run", lambda *arguments, run=compiled_cpp.run: seen.append(1) or run(*arguments))
    table, rows = torch.randn(4, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.int64)
    with torch.no_grad():
        recur(one, Lookup(table, rows), one.initial_state(2))
        assert seen == [1]
        with using("reference"):
            recur(one, Lookup(table, rows), one.initial_state(2))
    assert seen == [1]
