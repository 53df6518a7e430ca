"""Compiled sequences on a CPU: GEMM panels, loop schedules, results, and when the compiled form is chosen."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of
from cell_equivalence import assert_same, carried, compare, results
from hypothesis import given
from hypothesis import strategies as st
from processes import run_forked
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.cpu import build, runtime
from elman.compiler.cpu.emit import OPERATIONS, Emitter, TensorOffset
from elman.compiler.cpu.loop_schedule import LoopSchedule
from elman.compiler.cpu.memory_layout import EXPENSIVE
from elman.compiler.interpreter import TORCH_FUNCTIONS
from elman.compiler.ir import CROSS_UNIT, MatrixBlock, Node, StepIR, mask_finished_rows
from elman.ops import taps
from elman.recurrence import compiled_cpp, explain, forms_that_can_run, recur, using

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
LARGE = torch.zeros(32, 64, 3)


def plan_of(case: Any, size: int = 4) -> compiled_cpp.SequencePlan:
    made = compiled_cpp.plan(cell_of(*case, hidden_size=size))
    assert isinstance(made, compiled_cpp.SequencePlan)
    return made


def test_an_unregistered_cell_equals_the_reference() -> None:
    """All registered ones have laws."""
    for lengths in (None, [5, 0, 3]):
        compare(("invented", {}), 3, 5, 20, lengths, 1e-10, "compiled", torch.float64)
        compare(("invented", {}), 3, 5, 20, lengths, form="compiled")


@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"})], ids=str)
@pytest.mark.parametrize(("batch", "time", "size"), [(1, 1, 2), (7, 5, 33), (18, 2, 50), (9, 3, 130)])
def test_odd_sizes_equal_the_reference(case: Any, batch: int, time: int, size: int) -> None:
    """Panels of one, two and three vectors, remaining rows, an inner size above one cache block."""
    compare(case, batch, time, size, tolerance=1e-9, form="compiled", kind=torch.float64)
    compare(case, batch, time, size, [time, *[time - 1] * (batch - 1)], 1e-9, "compiled", torch.float64)
    compare(case, batch, time, size, form="compiled")


@given(st.integers(1, 140), st.integers(1, 3), st.booleans())
def test_gemm_equals_torch(size: int, count: int, flipped: bool) -> None:
    """Several values reach two products, by blocks of a matrix seen from either side. Catches: one vector too few in
    the last panel; seven rows left over forgotten."""
    torch.manual_seed(size)
    blocks = (count, 2) if flipped else (2, count)
    weight = torch.randn(blocks[0] * size, blocks[1] * size, dtype=torch.float64)

    def matrix(product: int, place: int) -> MatrixBlock:
        return MatrixBlock("w", *((place, product) if flipped else (product, place)), flipped)

    states = [Node("state", detail=(part,)) for part in range(count)]
    products = [Node("matmul", tuple(range(count)), tuple(matrix(n, p) for p in range(count))) for n in range(2)]
    program = StepIR(size, (*states, *products), (count,) * count, (count, count + 1))
    slots = [*(("result", n) for n in range(2)), *((what, n) for what in ("initial", "final") for n in range(count))]
    places = {slot: TensorOffset(n) for n, slot in enumerate(slots)}
    emitted = Emitter(program, program.outputs, places, ("w",)).function("walk")
    walk = runtime.load_kernels(torch.float64, [(program, emitted)])[0]
    for rows in range(1, 18):
        x = [torch.randn(rows, size, dtype=torch.float64) for _ in range(count)]
        found, final = torch.empty(2, rows, size, dtype=torch.float64), torch.empty_like(x[0])
        tensors = [(one.data_ptr(), one.stride(0), 0) for one in (weight, *found, *x, *[final] * count)]
        walk(rows, 1, tensors)
        expected = torch.cat(x, 1) @ (weight if flipped else weight.t())
        torch.testing.assert_close(torch.cat(list(found), -1), expected)


class Half(Cell):
    """Its step reads one part of its drive only."""

    name = "half"

    def __init__(self) -> None:
        super().__init__(Cell.Config(hidden_size=4), 3)
        self.from_input, self.from_past = nn.Linear(3, 12), PastProduct(4, 1)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(drive[:, 4:8] + self.from_past(state))
        return new, new


def test_unread_parts_of_the_drive_have_zero_gradients() -> None:
    """Catches: memory that nobody wrote, which torch fills with nan here."""
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
def test_values_are_computed_before_they_are_read(case: Any) -> None:
    made = plan_of(case)
    for program in (made.step, made.adjoint.program, mask_finished_rows(made.step)):
        plan = LoopSchedule(program)
        for index in plan.live:
            node = program.nodes[index]
            for arg in node.args:
                waits = node.op == "matmul" or program.nodes[arg].op == "sum"
                assert plan.loop[arg] + waits <= plan.loop[index]
        assert set(plan.starts) == {plan.loop[i] for i in plan.live if program.nodes[i].op == "matmul"}


def test_a_schedule_has_as_few_loops_as_possible() -> None:
    for case, loops in ((("lstm", {}), 1), (("gru", {}), 1), (("gru", {"reset": "before"}), 2)):
        assert LoopSchedule(plan_of(case).step).last == loops
    lstm = plan_of(("lstm", {}))
    assert not LoopSchedule(lstm.step).spilled
    assert len(lstm.adjoint.saved) == 6  # four gates, the memory before, and what is shown of the new one


def test_expensive_operations_are_not_recomputed() -> None:
    for case in CASES:
        made = plan_of(case)
        ops = {
            node.op
            for node, kind in zip(made.adjoint.program.nodes, made.adjoint.program.shapes(), strict=True)
            if kind != "vector"
        }
        assert not ops & EXPENSIVE - {"exp", "cos", "sin"}  # which are slopes of others


def test_every_operation_has_a_c_expression() -> None:
    assert set(TORCH_FUNCTIONS) <= set(OPERATIONS)
    assert not set(OPERATIONS) & set(CROSS_UNIT)


def test_gradients_equal_finite_differences() -> None:
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
    program = f"import sys; sys.path[:0] = {[str(HERE), str(TESTS), str(TESTS.parent)]}\n"
    program += "import torch; torch.set_num_threads(1)\nfrom test_sequence_programs import bits; print(bits())"
    found = run_forked("-c", program, check=True)
    assert bits() == bits() == found.stdout.strip()


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = bits()
    monkeypatch.setattr(runtime, "MIN_THREAD_WORK", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert bits() == alone


def test_without_gradients_nothing_is_saved() -> None:
    cell = cell_of("lstm", hidden_size=6)
    x = torch.randn(2, 3, 3)
    with using("compiled"):
        with torch.no_grad():
            outputs, _ = recur(cell, x, cell.initial_state(2))
        assert outputs.grad_fn is None
        torch.testing.assert_close(outputs, recur(cell, x, cell.initial_state(2))[0], rtol=0, atol=0)


def test_frozen_weights_have_no_gradient() -> None:
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


def test_it_is_chosen_for_long_sequences_of_large_cells() -> None:
    before = cell_of("gru", hidden_size=64, reset="before")
    assert explain(before, LARGE) == "compiled: C++ generated for gru"
    little = "the sequence is too short to be worth compiling"
    assert explain(before, LARGE[:3]) == f"reference: {little}; gru with reset before the product has no vendor kernel"
    assert explain(cell_of("lstm", hidden_size=64), LARGE) == "vendor: oneDNN LSTM"
    ragged = torch.tensor([64, *[5] * 31])
    assert explain(cell_of("lstm", hidden_size=64), LARGE, ragged) == "compiled: C++ generated for lstm"


def test_obstacles_name_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = cell_of("lstm"), torch.zeros(2, 3, 3)
    assert "compiled" in forms_that_can_run(cell, x)
    with taps.record("*"):
        assert forms_that_can_run(cell, x) == ["reference"]
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
    assert "cannot be written" in explain(cell_of("coupled", hidden_size=64), LARGE)
