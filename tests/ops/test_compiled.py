"""The compiled form of the recurrence: its panels, its phases, its numbers, and when it is taken."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of
from cell_equivalence import assert_same, carried, compare, results
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.cpu import build, runtime
from elman.compiler.cpu.emit import WRITTEN, Place, emit
from elman.compiler.cpu.loop_schedule import Phases
from elman.compiler.cpu.memory_layout import DEAR
from elman.compiler.ir import HEARD, Matrix, Node, Program, ending
from elman.compiler.pointwise import COMPUTED
from elman.ops import taps
from elman.recurrence import compiled_cpp, explain, forms_that_can_run, recur, using

HERE = Path(__file__).parent
LARGE = torch.zeros(32, 64, 3)


def plan_of(case: Any, size: int = 4) -> compiled_cpp.Plan:
    made = compiled_cpp.plan(cell_of(*case, hidden_size=size))
    assert isinstance(made, compiled_cpp.Plan)
    return made


def test_a_cell_that_nobody_wrote_before_equals_the_reference() -> None:
    """All registered ones have laws."""
    for lengths in (None, [5, 0, 3]):
        compare(("invented", {}), 3, 5, 20, lengths, 1e-10, "compiled", torch.float64)
        compare(("invented", {}), 3, 5, 20, lengths, form="compiled")


@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"})], ids=str)
@pytest.mark.parametrize(("batch", "time", "size"), [(1, 1, 2), (7, 5, 33), (18, 2, 50), (9, 3, 130)])
def test_odd_sizes_equal_the_reference(case: Any, batch: int, time: int, size: int) -> None:
    """Panels of one, two and three vectors, rows left over, more inner places than one cache takes."""
    compare(case, batch, time, size, tolerance=1e-9, form="compiled", kind=torch.float64)
    compare(case, batch, time, size, [time, *[time - 1] * (batch - 1)], 1e-9, "compiled", torch.float64)
    compare(case, batch, time, size, form="compiled")


@given(st.integers(1, 140), st.integers(1, 3), st.booleans())
def test_panels_multiply_as_torch_does(size: int, count: int, flipped: bool) -> None:
    """Several values reach two products, by blocks of a matrix seen from either side. Planted: one vector too few in
    the last panel; seven rows left over forgotten."""
    torch.manual_seed(size)
    blocks = (count, 2) if flipped else (2, count)
    weight = torch.randn(blocks[0] * size, blocks[1] * size, dtype=torch.float64)

    def matrix(product: int, place: int) -> Matrix:
        return Matrix("w", *((place, product) if flipped else (product, place)), flipped)

    states = [Node("state", detail=(part,)) for part in range(count)]
    products = [Node("product", tuple(range(count)), tuple(matrix(n, p) for p in range(count))) for n in range(2)]
    program = Program(size, (*states, *products), (count,) * count, (count, count + 1))
    slots = [*(("stored", n) for n in range(2)), *((what, n) for what in ("initial", "final") for n in range(count))]
    places = {slot: Place(n) for n, slot in enumerate(slots)}
    emitted = emit("walk", program, program.given, places, ("w",))
    walk = runtime.load(torch.float64, [(program, emitted)])[0]
    for rows in range(1, 18):
        x = [torch.randn(rows, size, dtype=torch.float64) for _ in range(count)]
        found, final = torch.empty(2, rows, size, dtype=torch.float64), torch.empty_like(x[0])
        tensors = [(one.data_ptr(), one.stride(0), 0) for one in (weight, *found, *x, *[final] * count)]
        walk(rows, 1, tensors)
        expected = torch.cat(x, 1) @ (weight if flipped else weight.t())
        torch.testing.assert_close(torch.cat(list(found), -1), expected)


class Half(Cell):
    """It looks at one part of its drive only."""

    name = "half"

    def __init__(self) -> None:
        super().__init__(Cell.Config(hidden_size=4), 3)
        self.from_input, self.from_past = nn.Linear(3, 12), PastProduct(4, 1)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(drive[:, 4:8] + self.from_past(state))
        return new, new


def test_what_the_step_does_not_look_at_has_no_gradient() -> None:
    """Planted: memory that nobody wrote, which torch fills with nan here."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    cell, x, state = Half().double(), torch.randn(3, 5, 3).double(), [torch.randn(3, 4).double()]
    found = []
    for form in ("compiled", "reference"):
        with using(form):
            found.append(results(recur, cell, x, state))
    torch.use_deterministic_algorithms(False)
    assert_same(*found, tolerance=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_made_before_they_are_read(case: Any) -> None:
    made = plan_of(case)
    for program in (made.step, made.adjoint.program, ending(made.step)):
        plan = Phases(program)
        for index in plan.live:
            node = program.nodes[index]
            for arg in node.args:
                waits = node.op == "product" or program.nodes[arg].op == "total"
                assert plan.place[arg] + waits <= plan.place[index]
        assert set(plan.starts) == {plan.place[i] for i in plan.live if program.nodes[i].op == "product"}


def test_a_step_takes_as_few_loops_as_it_can() -> None:
    for case, loops in ((("lstm", {}), 1), (("gru", {}), 1), (("gru", {"reset": "before"}), 2)):
        assert Phases(plan_of(case).step).last == loops
    lstm = plan_of(("lstm", {}))
    assert not Phases(lstm.step).outliving
    assert len(lstm.adjoint.kept) == 6  # four gates, the memory before, and what is shown of the new one


def test_nothing_dear_is_computed_twice() -> None:
    for case in CASES:
        made = plan_of(case)
        ops = {
            node.op
            for node, kind in zip(made.adjoint.program.nodes, made.adjoint.program.kinds(), strict=True)
            if kind != "vector"
        }
        assert not ops & DEAR - {"exp", "cos", "sin"}  # which are slopes of others


def test_every_operation_has_its_formula() -> None:
    assert set(COMPUTED) <= set(WRITTEN)
    assert not set(WRITTEN) & set(HEARD)


def test_gradients_are_those_of_small_differences() -> None:
    torch.manual_seed(0)
    cell = cell_of("layernorm-lstm", hidden_size=3).double()
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    state = [part.requires_grad_() for part in carried(cell, 2)]
    lengths = torch.tensor([3, 2])

    def run(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        with using("compiled"):
            outputs, final = recur(cell, x, type(cell.initial_state(1))(*state), lengths)
        return outputs[0], outputs[1, :2], *final

    assert torch.autograd.gradcheck(run, (x, *state))


def bits() -> str:
    """Of all results of a training step that uses every kind of loop."""
    torch.manual_seed(0)
    cell = cell_of("layernorm-lstm", hidden_size=37)
    with using("compiled"):
        found = results(recur, cell, torch.randn(11, 7, 3), carried(cell, 11), torch.tensor([7, 0, *[5] * 9]))
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in found if one is not None)).hexdigest()


@pytest.mark.slow
def test_the_bits_are_the_same_in_every_run_and_process() -> None:
    program = f"import sys; sys.path[:0] = {[str(HERE), str(HERE.parent), str(HERE.parents[1])]}\n"
    program += "import torch; torch.set_num_threads(1)\nfrom test_compiled import bits; print(bits())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert bits() == bits() == found.stdout.strip()


def test_threads_share_rows_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = bits()
    monkeypatch.setattr(runtime, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert bits() == alone


def test_without_gradients_nothing_is_kept() -> None:
    cell = cell_of("lstm", hidden_size=6)
    x = torch.randn(2, 3, 3)
    with using("compiled"):
        with torch.no_grad():
            outputs, _ = recur(cell, x, cell.initial_state(2))
        assert outputs.grad_fn is None
        torch.testing.assert_close(outputs, recur(cell, x, cell.initial_state(2))[0], rtol=0, atol=0)


def test_weights_that_do_not_learn_have_no_gradient() -> None:
    torch.manual_seed(0)
    cell = cell_of("peephole", hidden_size=6).double()
    cell.from_past.weight.requires_grad_(False)
    x, state = torch.randn(2, 3, 3, dtype=torch.float64), carried(cell, 2)
    found = []
    for form in ("compiled", "reference"):
        with using(form):
            found.append(results(recur, cell, x, state))
    assert_same(*found, tolerance=1e-10)
    assert cell.from_past.weight.grad is None


def test_it_is_taken_where_the_work_is_worth_a_compiler() -> None:
    before = cell_of("gru", hidden_size=64, reset="before")
    assert explain(before, LARGE) == "compiled: C++ generated for gru"
    little = "so little work is not worth a compiler's time"
    assert explain(before, LARGE[:3]) == f"reference: {little}; gru with reset before the product has no vendor kernel"
    assert explain(cell_of("lstm", hidden_size=64), LARGE) == "vendor: oneDNN LSTM"
    ragged = torch.tensor([64, *[5] * 31])
    assert explain(cell_of("lstm", hidden_size=64), LARGE, ragged) == "compiled: C++ generated for lstm"


def test_the_reason_why_it_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = cell_of("lstm"), torch.zeros(2, 3, 3)
    assert "compiled" in forms_that_can_run(cell, x)
    with taps.record("*"):
        assert compiled_cpp.obstacle(cell, x, None) == "a recorder is listening"
        cell.step(cell.drive(x[:, 0]), cell.initial_state(2))
    assert compiled_cpp.obstacle(cell, x[:0], None) == "the batch is empty"
    assert "meta" in (compiled_cpp.obstacle(cell, x.to("meta"), None) or "")
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in (compiled_cpp.obstacle(cell, x, None) or "")
    assert "bfloat16" in (compiled_cpp.obstacle(cell_of("lstm").bfloat16(), x.bfloat16(), None) or "")
    assert "width 1" in (compiled_cpp.obstacle(cell_of("lstm", hidden_size=1), x, None) or "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    try:
        assert "there is no C++ compiler" in (compiled_cpp.obstacle(cell, x, None) or "")
    finally:
        build.compiler.cache_clear()


def test_where_compiling_fails_another_form_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ELMAN_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(runtime, "_library", runtime._library.__wrapped__)
    assert "cannot be kept" in explain(cell_of("coupled", hidden_size=64), LARGE)
