"""Unit programs: a step taken apart gives what the step gives, and its derivative is the derivative."""

import random
from typing import Any, NamedTuple

import pytest
import torch
from cell_cases import CASES, Invented, cell_of, parts_of
from torch import Tensor, nn

from elman.cells import CELLS, Cell, PastProduct
from elman.compiler.autodiff import derive
from elman.compiler.errors import CannotCompile
from elman.compiler.frontend import read
from elman.compiler.interpreter import evaluate, matrix_gradients, together
from elman.compiler.ir import Node, Program, described, ending
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
def test_a_unit_program_computes_what_the_step_computes(case, batch: int, size: int) -> None:
    """Planted: all parts from the first block of a matrix."""
    here = situation(case, batch, size)
    program = read(here.cell)
    wanted = [*program.given, *program.carried]
    found = evaluate(program, wanted, lambda index: here.leaf(program.nodes[index]), here.weights)
    for index, expected in zip(wanted, stepped(here), strict=True):
        torch.testing.assert_close(found[index], expected, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("batch", "size"), [(1, 2), (3, 5)])
def test_the_derivative_of_a_unit_program_is_that_of_the_step(case, batch: int, size: int) -> None:
    """Planted: no transposition; the slope of tanh without its square; a mean's adjoint not summed over units."""
    here = situation(case, batch, size)
    program = read(here.cell)
    adjoint = derive(program)
    results = stepped(here)
    grads = [torch.randn_like(result) for result in results]
    used = [weight for weight in here.weights.values() if weight.requires_grad]
    wanted = torch.autograd.grad(results, [here.drive, *here.state, *used], grads, allow_unused=True)
    expected = dict(zip(["drive", *range(len(here.state)), *map(id, used)], wanted, strict=True))
    heard = products_of(program, adjoint.products)
    values = evaluate(program, [*adjoint.kept, *heard], lambda index: here.leaf(program.nodes[index]), here.weights)

    def leaf(index: int) -> Tensor:
        node = adjoint.program.nodes[index]
        if node.op == "state":
            return grads[1 + node.detail[0]]
        return grads[0] if node.detail[0] == "output" else values[adjoint.kept[node.detail[1]]]

    found = evaluate(adjoint.program, adjoint.program.results(), leaf, here.weights)
    given = [found[index] for index in adjoint.program.given]
    drive = expected["drive"].split(size, -1)
    for part, got in zip(adjoint.drive, given, strict=False):
        torch.testing.assert_close(got, drive[part], atol=1e-9, rtol=1e-7)
    for part, index in enumerate(adjoint.program.carried):
        want = expected[part]
        torch.testing.assert_close(
            found[index].expand(batch, size), torch.zeros(batch, size).double() if want is None else want
        )
    gradients = {name: torch.zeros_like(weight) for name, weight in here.weights.items()}
    products = dict(zip(adjoint.products, given[len(adjoint.drive) :], strict=True))

    def side_by_side(indices: list[int]) -> Tensor:
        return torch.cat([products[index] for index in indices], -1)

    with torch.no_grad():
        groups = together(program, adjoint.products)
        gradients |= matrix_gradients(program, groups, side_by_side, values.__getitem__, here.weights)
        for (name, part), index in zip(adjoint.vectors, adjoint.program.summed, strict=True):
            gradients[name].view(-1, size)[part] += found[index].expand(batch, size).sum(0)
    for name, weight in here.weights.items():
        if weight.requires_grad:
            want = expected[id(weight)]
            torch.testing.assert_close(gradients[name], torch.zeros_like(weight) if want is None else want)


def products_of(program: Program, products: tuple[int, ...]) -> list[int]:
    return [arg for index in products for arg in program.nodes[index].args]


def test_an_lstm_keeps_little_for_its_derivative() -> None:
    """Four sums that reach the gates and the memory before: no gate, no drive and product apart."""
    program = read(cell_of("lstm"))
    kept = [program.nodes[index] for index in derive(program).kept]
    assert [node.op for node in kept] == ["state", "add", "add", "add", "add"]


def test_rows_that_have_ended_keep_their_state() -> None:
    here = situation(("lstm", {}), 3, 4)
    program = ending(read(here.cell))
    going = torch.tensor([[True], [False], [True]])

    def leaf(index: int) -> Tensor:
        node = program.nodes[index]
        return going if node.op == "going" else here.leaf(node)

    found = evaluate(program, program.carried, leaf, here.weights)
    for index, old, new in zip(program.carried, here.state, stepped(here)[1:], strict=True):
        torch.testing.assert_close(found[index], torch.where(going, new, old))


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
        (lambda cell, x: torch.cat([x[:, 1:], x[:, :1]], -1), "cuts a tensor at 1"),
        (lambda cell, x: x * cell.mix.sum(), r"mix of shape \(3,\)"),
        (lambda cell, x: x - x.mean(0), "mixes rows"),
        (lambda cell, x: x if x.sum() > 0 else -x, "cannot be traced: it looks at the value of a number"),
        (lambda cell, x: x / (1 + float(x.abs().max())), "cannot be traced: it looks at the value of a number"),
        (lambda cell, x: x @ (x.t() @ x), "matrix"),
        (lambda cell, x: x**5, "power 5"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(step, reason: str) -> None:
    with pytest.raises(CannotCompile, match=reason):
        read(Refused(step))


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
        (lambda cell, x: x * random.random(), "other numbers"),
        (lambda cell, x: torch.tanh(x).bfloat16().float(), "turns numbers into torch.bfloat16"),
        (lambda cell, x: torch.tanh(x).half().float(), "turns numbers into torch.float16"),
        (lambda cell, x: torch.tanh(x).double(), "other numbers"),
        (lambda cell, x: x // 0.5 + x, "uses div with floor"),
    ],
)
def test_what_a_tracer_does_not_see_is_refused(step, reason: str) -> None:
    """Planted: no look at the numbers: gradients passed a detach, and a division was not rounded."""
    with pytest.raises(CannotCompile, match=reason):
        read(Refused(step))


def test_what_a_step_keeps_in_its_cell_is_refused_and_put_back() -> None:
    """Planted: a counter stood still; a kept tensor was a tracer's, without numbers, and the next step fell over it."""

    def counting(cell: Cell, x: Tensor) -> Tensor:
        cell.count = getattr(cell, "count", 0) + 1
        return torch.tanh(x) / cell.count

    cell = Refused(counting)
    with pytest.raises(CannotCompile, match=r"sets self.count, and what lasts"):
        read(cell)
    assert not hasattr(cell, "count")


def test_a_state_of_another_precision_is_refused() -> None:
    """Planted: whatever the type of the state, steps computed in that of the weights."""
    cell = Refused(lambda cell, x: torch.tanh(x))
    cell.initial_state = lambda batch: cell.zeros(batch).double()
    with pytest.raises(CannotCompile, match=r"kept in torch\.float64"):
        read(cell)


def test_a_choice_that_is_settled_before_the_first_step_is_compiled() -> None:
    """Planted: a condition that became a number, which no `where` takes: lerp by a number was an error of torch."""
    cell = Refused(lambda cell, x: torch.lerp(x, torch.tanh(x), 0.3), size=16)
    x, state = torch.randn(2, 5, 3), torch.zeros(2, 16)
    found, expected = (FORMS[form].run(cell, x, state, None)[0] for form in ("compiled", "reference"))
    torch.testing.assert_close(found, expected)


def test_weights_left_out_are_no_part_of_the_equation() -> None:
    cell = cell_of("lstm", weight_dropout=0.5).train()
    with cell.dropping():
        assert described(read(cell)) == described(read(cell_of("lstm")))
        assert cell.from_past.thinned is not None


def test_every_registered_cell_is_among_the_cases() -> None:
    assert {name for name, _ in CASES} == {*CELLS, Invented.name}


@pytest.mark.parametrize("name", ["lstm", "layernorm-lstm"])
def test_a_step_is_read_whatever_device_is_the_default(name: str) -> None:
    """Planted: numbers for the check are drawn on the default device, as a GPU, where no generator of ours is."""
    cell = cell_of(name, hidden_size=16)
    expected = read(cell)
    with torch.device("meta"):
        assert read(cell) == expected
