"""The IR computes what the step computes, and its adjoint is the derivative."""

import random
from typing import Any, NamedTuple

import pytest
import torch
from cell_cases import CASES, Invented, cell_of, parts_of
from torch import Tensor, nn

from elman.cells import CELLS, Cell, PastProduct
from elman.compiler.autodiff import differentiate
from elman.compiler.errors import CannotCompile
from elman.compiler.frontend import trace_cell
from elman.compiler.interpreter import evaluate, group_matmuls, matrix_gradients
from elman.compiler.ir import Node, StepIR, dump, mask_finished_rows
from elman.recurrence import FORMS


class Situation(NamedTuple):
    cell: Cell
    drive: Tensor
    state: list[Tensor]
    weights: dict[str, Tensor]

    def leaf(self, node: Node) -> Tensor:
        if node.op == "load":
            return self.drive.split(self.cell.hidden_size, -1)[node.detail[1]]
        return self.state[node.detail[0]]


def situation(case: tuple[str, dict[str, Any]], batch: int, size: int, seed: int = 0) -> Situation:
    torch.manual_seed(seed)
    cell = cell_of(*case, hidden_size=size).double()
    drive = cell.drive(torch.randn(batch, 3, dtype=torch.float64)).detach().requires_grad_()
    state = [torch.randn_like(part).requires_grad_() for part in parts_of(cell.initial_state(batch))]
    weights = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    return Situation(cell, drive, state, weights)


def stepped(given: Situation) -> list[Tensor]:
    form = given.cell.initial_state(1)
    state = given.state[0] if isinstance(form, Tensor) else type(form)(*given.state)
    output, new = given.cell.step(given.drive, state)
    return [output, *parts_of(new)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("batch", "size"), [(1, 2), (3, 5)])
def test_the_ir_computes_what_the_step_computes(case, batch: int, size: int) -> None:
    """Catches: all parts from the first block of a matrix."""
    here = situation(case, batch, size)
    program = trace_cell(here.cell)
    wanted = [*program.outputs, *program.next_state]
    found = evaluate(program, wanted, lambda index: here.leaf(program.nodes[index]), here.weights)
    for index, expected in zip(wanted, stepped(here), strict=True):
        torch.testing.assert_close(found[index], expected, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("batch", "size"), [(1, 2), (3, 5)])
def test_the_adjoint_is_the_derivative_of_the_step(case, batch: int, size: int) -> None:
    """Catches: no transposition; the slope of tanh without its square; a mean's adjoint not summed over units."""
    here = situation(case, batch, size)
    program = trace_cell(here.cell)
    adjoint = differentiate(program)
    results = stepped(here)
    grads = [torch.randn_like(result) for result in results]
    used = [weight for weight in here.weights.values() if weight.requires_grad]
    wanted = torch.autograd.grad(results, [here.drive, *here.state, *used], grads, allow_unused=True)
    expected = dict(zip(["drive", *range(len(here.state)), *map(id, used)], wanted, strict=True))
    operands = operands_of(program, adjoint.matmuls)
    values = evaluate(program, [*adjoint.saved, *operands], lambda index: here.leaf(program.nodes[index]), here.weights)

    def leaf(index: int) -> Tensor:
        node = adjoint.program.nodes[index]
        if node.op == "state":
            return grads[1 + node.detail[0]]
        return grads[0] if node.detail[0] == "output" else values[adjoint.saved[node.detail[1]]]

    found = evaluate(adjoint.program, adjoint.program.results(), leaf, here.weights)
    outputs = [found[index] for index in adjoint.program.outputs]
    drive = expected["drive"].split(size, -1)
    for part, got in zip(adjoint.drive, outputs, strict=False):
        torch.testing.assert_close(got, drive[part], atol=1e-9, rtol=1e-7)
    for part, index in enumerate(adjoint.program.next_state):
        want = expected[part]
        torch.testing.assert_close(
            found[index].expand(batch, size), torch.zeros(batch, size).double() if want is None else want
        )
    gradients = {name: torch.zeros_like(weight) for name, weight in here.weights.items()}
    products = dict(zip(adjoint.matmuls, outputs[len(adjoint.drive) :], strict=True))

    def side_by_side(indices: list[int]) -> Tensor:
        return torch.cat([products[index] for index in indices], -1)

    with torch.no_grad():
        groups = group_matmuls(program, adjoint.matmuls)
        gradients |= matrix_gradients(program, groups, side_by_side, values.__getitem__, here.weights)
        for (name, part), index in zip(adjoint.vectors, adjoint.program.accumulated, strict=True):
            gradients[name].view(-1, size)[part] += found[index].expand(batch, size).sum(0)
    for name, weight in here.weights.items():
        if weight.requires_grad:
            want = expected[id(weight)]
            torch.testing.assert_close(gradients[name], torch.zeros_like(weight) if want is None else want)


def operands_of(program: StepIR, matmuls: tuple[int, ...]) -> list[int]:
    return [arg for index in matmuls for arg in program.nodes[index].args]


def test_an_lstm_saves_five_values_for_its_derivative() -> None:
    """The four pre-activations and the old memory: no gate, no drive and no matmul by itself."""
    program = trace_cell(cell_of("lstm"))
    kept = [program.nodes[index] for index in differentiate(program).saved]
    assert [node.op for node in kept] == ["state", "add", "add", "add", "add"]


def test_finished_rows_keep_their_state() -> None:
    here = situation(("lstm", {}), 3, 4)
    program = mask_finished_rows(trace_cell(here.cell))
    active = torch.tensor([[True], [False], [True]])

    def leaf(index: int) -> Tensor:
        node = program.nodes[index]
        return active if node.op == "active" else here.leaf(node)

    found = evaluate(program, program.next_state, leaf, here.weights)
    for index, old, new in zip(program.next_state, here.state, stepped(here)[1:], strict=True):
        torch.testing.assert_close(found[index], torch.where(active, new, old))


class Refused(Cell):
    name = "refused"

    def __init__(self, step, size: int = 4):
        super().__init__(Cell.Config(hidden_size=size), 3)
        self.from_input, self.from_past = nn.Linear(3, size), PastProduct(size, 1)
        self.mix = nn.Parameter(torch.zeros(3))
        self.how = step

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = self.how(self, drive + self.from_past(state))
        return new, new


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda cell, x: x.cumsum(-1), "uses cumsum"),
        (lambda cell, x: torch.cat([x[:, 1:], x[:, :1]], -1), "slices a tensor at 1"),
        (lambda cell, x: x * cell.mix.sum(), r"mix of shape \(3,\)"),
        (lambda cell, x: x - x.mean(0), "mixes rows"),
        (lambda cell, x: x if x.sum() > 0 else -x, "cannot be traced: it reads the value of a tensor"),
        (lambda cell, x: x / (1 + float(x.abs().max())), "cannot be traced: it reads the value of a tensor"),
        (lambda cell, x: x @ (x.t() @ x), "matrix"),
        (lambda cell, x: x**5, "raises to the power 5"),
    ],
)
def test_unsupported_steps_are_rejected_with_the_reason(step, reason: str) -> None:
    with pytest.raises(CannotCompile, match=reason):
        trace_cell(Refused(step))


class Spike(torch.autograd.Function):
    """A gradient of one's own."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return 0.5 * grad


def in_no_graph(cell: Cell, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(x)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda cell, x: torch.tanh(x) + (torch.sign(x) - x).detach(), "other gradients"),
        (in_no_graph, "other gradients"),
        (lambda cell, x: Spike.apply(x), "other gradients"),
        (lambda cell, x: x * random.random(), "other values"),
        (lambda cell, x: torch.tanh(x).bfloat16().float(), "casts to torch.bfloat16"),
        (lambda cell, x: torch.tanh(x).half().float(), "casts to torch.float16"),
        (lambda cell, x: torch.tanh(x).double(), "other values"),
        (lambda cell, x: x // 0.5 + x, "uses div with floor"),
    ],
)
def test_differences_that_tracing_cannot_see_are_rejected(step, reason: str) -> None:
    """Catches: no verification: gradients passed a detach, and a division was not rounded."""
    with pytest.raises(CannotCompile, match=reason):
        trace_cell(Refused(step))


def test_attributes_assigned_by_a_step_are_rejected_and_restored() -> None:
    """Catches: a counter stood still; a stored tensor was a tracer's, and the next step failed on it."""

    def counting(cell: Cell, x: Tensor) -> Tensor:
        cell.count = getattr(cell, "count", 0) + 1
        return torch.tanh(x) / cell.count

    cell = Refused(counting)
    with pytest.raises(CannotCompile, match=r"assigns self.count; values that last"):
        trace_cell(cell)
    assert not hasattr(cell, "count")


def test_a_state_of_another_dtype_is_rejected() -> None:
    """Catches: steps computed in the weights' dtype whatever the state's."""
    cell = Refused(lambda cell, x: torch.tanh(x))
    cell.initial_state = lambda batch: cell.zeros(batch).double()
    with pytest.raises(CannotCompile, match=r"kept in torch\.float64"):
        trace_cell(cell)


def test_a_condition_that_is_constant_is_folded() -> None:
    """Catches: a condition folded to a Python number, which torch.where does not take (lerp by a number)."""
    cell = Refused(lambda cell, x: torch.lerp(x, torch.tanh(x), 0.3), size=16)
    x, state = torch.randn(2, 5, 3), torch.zeros(2, 16)
    found, expected = (FORMS[form].run(cell, x, state, None)[0] for form in ("compiled", "reference"))
    torch.testing.assert_close(found, expected)


def test_weight_dropout_is_no_part_of_the_ir() -> None:
    cell = cell_of("lstm", weight_dropout=0.5).train()
    with cell.dropping():
        assert dump(trace_cell(cell)) == dump(trace_cell(cell_of("lstm")))
        assert cell.from_past.thinned is not None


def test_every_registered_cell_is_among_the_cases() -> None:
    assert {name for name, _ in CASES} == {*CELLS, Invented.name}


@pytest.mark.parametrize("name", ["lstm", "layernorm-lstm"])
def test_a_step_is_traced_whatever_the_default_device(name: str) -> None:
    """Catches: verification draws its inputs on the default device, where its generator is not."""
    cell = cell_of(name, hidden_size=16)
    expected = trace_cell(cell)
    with torch.device("meta"):
        assert trace_cell(cell) == expected
