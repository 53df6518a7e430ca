"""Generated kernels equal the reference. Run by test_generated.py with TRITON_INTERPRET=1, where no GPU is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of, parts_of
from form_comparison import assert_same, carried, compare, results
from torch import Tensor
from torch.nn import functional as F

from elman.cells import Cell
from elman.compiler.triton import launcher
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition
from elman.compiler.triton.saved_for_backward import THERE
from elman.errors import TrainingError
from elman.ops import kernel_timeout
from elman.recurrence import compiled_triton, explain, recur, using
from elman.recurrence.compiled_triton import dividing

# who does not wait reads memory that nobody has written
UNWRITTEN = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_program_equals_the_reference(case: Any) -> None:
    """Planted: gates in another order; totals that count padded units."""
    compare(case, 3, 5, 20)
    compare(case, 3, 5, 20, [5, 0, 3])


@pytest.mark.parametrize(("batch", "time", "size"), [(1, 1, 16), (7, 5, 20), (18, 2, 5), (1, 5, 32)])
@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"})], ids=str)
def test_odd_sizes_equal_the_reference(case: Any, batch: int, time: int, size: int) -> None:
    compare(case, batch, time, size)


@contextmanager
def launched_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter runs programs one after another, so none can wait for another. But nothing in memory is ever
    overwritten by something else: launched again and again without waiting, each launch finds one more round done."""
    once = Kernel.__call__

    def often(self: Kernel, history: Tensor, loads: Any, *given: Any) -> Any:
        batch, time = next(iter(loads[0].values())).shape[:2]
        partials = torch.zeros(self.shares(batch, time))
        for launch in range(time * max(1, self.emitted.rounds) + 1):
            kernel_timeout.ALARMS.clear()
            found = once(self, history, loads, *given, partials=partials, patience=0, fresh=launch == 0)
        kernel_timeout.ALARMS.clear()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "__call__", often)
        yield


MANY = [
    (("lstm", {}), 1, 64, "atomic", None),
    (("gru", {}), 2, 64, "atomic", [2, 0, 1]),
    (("gru", {"reset": "before"}), 1, 16, "atomic", [1, 2, 2]),
    (("layernorm-lstm", {}), 1, 16, "atomic", None),
    (("invented", {}), 1, 64, "atomic", None),
    (("lstm", {}), 2, 64, "data", None),
    (("gru", {"reset": "before"}), 2, 64, "data", [1, 2, 2]),
    (("layernorm-lstm", {}), 2, 64, "data", None),
    (("invented", {}), 2, 64, "data", [2, 0, 1]),
    (("lstm", {}), 2, 64, "gripped", [2, 0, 1]),
    (("gru", {}), 2, 64, "gripped", None),
    (("lstm", {}), 2, 64, "eight", [2, 0, 1]),
    (("lstm", {}), 2, 64, "sum", [2, 0, 1]),
    (("gated", {}), 2, 64, "sum", None),
    (("layernorm-lstm", {}), 2, 64, "sum", None),
    (("layernorm-lstm", {}), 2, 64, "eight", None),
    (("lstm", {}), 2, 64, "in turn", [2, 0, 1]),
    (("gru", {}), 2, 64, "in turn", None),
    (("lstm", {}), 1, 64, "turned", None),
    (("lstm", {}), 2, 64, "near", [2, 0, 1]),
    (("layernorm-lstm", {}), 2, 64, "near", None),
    (("gru", {"reset": "before"}), 2, 64, "post", [2, 0, 1]),
    (("layernorm-lstm", {}), 2, 64, "post", None),
]


@UNWRITTEN
@pytest.mark.parametrize(("case", "split", "chunk", "poll", "lengths"), MANY, ids=str)
def test_many_programs_equal_the_reference(
    case: Any, split: int, chunk: int, poll: str, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units over two programs, the second mostly empty; the inner dimension in pieces and among warps. Planted: a total
    of one program's share only; weights in registers, halves of columns in turn; units of a second part first; what
    is heard first left out."""
    polls = {"turned": "atomic", "gripped": "data", "eight": "data", "sum": "data", "in turn": "data"}
    rows, size = 8 if poll == "eight" else 16, {"sum": 40, "in turn": 140}.get(poll, 20)
    part = Partition(rows, 16, split=split, chunk=chunk, poll=polls.get(poll, poll), turned=poll == "turned")
    part = replace(part, gripped=int(poll == "gripped"), at_once=2 if poll == "in turn" else part.at_once)
    ahead = replace(part, units=24) if poll == "sum" else part
    with dividing(forward=ahead, backward=part), launched_again(monkeypatch):
        compare(case, 3, 2, size, lengths)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("units", "rest"), [(16, 0), (12, 0), (16, 1), (15, 0)])
def test_numbers_in_pairs_are_the_same_numbers(
    kind: torch.dtype, units: int, rest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 16 bits fetched as one, if rows are an even number of them apart and units even. Planted: halves in the
    other order; of one kind read as another; the rows of pairs as far apart as those of numbers."""
    torch.manual_seed(0)
    cell = cell_of("lstm", hidden_size=units).to(kind)
    whole = cell.drive
    monkeypatch.setattr(cell, "drive", lambda x: F.pad(whole(x), (0, rest))[..., : 4 * units])
    x, state = torch.randn(3, 5, 3, dtype=kind), carried(cell, 3)
    fetched, found = [], []
    for poll in ("near", "load"):
        part = Partition(16, 16, poll=poll)
        with dividing(forward=part, backward=part), using("generated"), monkeypatch.context() as patch:
            patch.setattr(launcher, "_in_pairs", seen(fetched))
            found.append(results(recur, cell, x, state))
    expected = [] if units % 2 else [kind if rest else torch.int32] * 4
    assert fetched == expected
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def seen(fetched: list[torch.dtype]) -> Any:
    """How the first loads of a kernel are fetched."""
    paired = launcher._in_pairs

    def told(tensors: Any, kind: torch.dtype) -> Any:
        made = paired(tensors, kind)
        if len(fetched) < 4:
            fetched.append(made[0].dtype)
        return made

    return told


@pytest.mark.parametrize("lengths", [None, [5, 0, 3]])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_walk_down_is_a_walk_up_through_rows_turned_round(name: str, lengths: list[int] | None) -> None:
    torch.manual_seed(0)
    cell = cell_of(name, hidden_size=6)
    x, state = torch.randn(3, 5, 3), carried(cell, 3)
    rows = None if lengths is None else torch.tensor(lengths)
    ends = torch.full((3,), 5) if rows is None else rows
    places = torch.arange(5).expand(3, 5)
    places = torch.where(places < ends.unsqueeze(1), ends.unsqueeze(1) - 1 - places, places)
    turn = torch.arange(3).unsqueeze(1), places

    def down(cell: Cell, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
        return compiled_triton.run(cell, x, state, lengths, down=True)

    def turned(cell: Cell, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
        with using("reference"):
            outputs, final = recur(cell, x[turn], state, lengths)
        return outputs[turn], final

    assert_same(results(down, cell, x, state, rows), results(turned, cell, x, state, rows))


@pytest.mark.parametrize("read", ["outputs", "first part", "last part"])
@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"}), ("invented", {})], ids=str)
def test_what_nobody_reads_adds_nothing_to_gradients(case: Any, read: str) -> None:
    """Planted: ones for gradients that nobody gave."""
    torch.manual_seed(0)
    cell = cell_of(*case, hidden_size=6)
    x, state = torch.randn(3, 4, 3), carried(cell, 3)

    def partly(cell: Cell, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
        outputs, final = recur(cell, x, state, lengths)
        parts = [outputs, *parts_of(final)]
        kept = parts[{"outputs": 0, "first part": 1, "last part": -1}[read]]
        seen = [part if part is kept else part.detach() for part in parts]
        return seen[0], seen[1] if isinstance(final, Tensor) else type(final)(*seen[1:])

    found = []
    for form in ("generated", "reference"):
        with using(form):
            found.append(results(partly, cell, x, state))
    assert_same(*found)


def test_without_gradients_only_the_output_is_stored() -> None:
    cell = cell_of("lstm", hidden_size=6)
    x = torch.randn(2, 3, 3)
    with torch.no_grad(), using("generated"):
        outputs, _ = recur(cell, x, cell.initial_state(2))
    assert outputs.untyped_storage().nbytes() == 16 * 4 * 16 * 4
    with using("reference"):
        torch.testing.assert_close(outputs, recur(cell, x, cell.initial_state(2))[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward_multiplies_nothing_that_forward_has_multiplied(case: Any) -> None:
    """Planted: products of shared numbers are not stored."""
    for ragged in (False, True):
        plan = compiled_triton.plan(cell_of(*case, hidden_size=20), ragged)
        recall, nodes = plan.recall, plan.step.nodes
        given = recall.filling(4).given if recall.filled else recall.needed
        assert all(index in recall.remembered or nodes[index].op in THERE for index in given)


@pytest.mark.parametrize(("name", "kept"), [("lstm", False), ("layernorm-lstm", True)])
def test_what_drives_steps_is_kept_only_if_backward_reads_it(name: str, kept: bool) -> None:
    """Planted: it is always kept."""
    cell = cell_of(name, hidden_size=20)
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.untyped_storage().nbytes() if tensor.shape == (3, 5, 80) else 0)
        return tensor

    with using("generated"), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        recur(cell, torch.randn(3, 5, 3), cell.initial_state(3))
    assert (3 * 5 * 80 * 4 in saved) is kept


def test_under_autocast_outputs_are_half_and_states_whole() -> None:
    torch.manual_seed(0)
    cell = cell_of("lstm", hidden_size=12)
    x = torch.randn(2, 4, 3)
    with torch.autocast("cpu", torch.float16), using("generated"):
        outputs, state = recur(cell, x, cell.initial_state(2))
        outputs.float().sum().backward()
    assert outputs.dtype == torch.float16
    assert {part.dtype for part in state} == {torch.float32}
    assert cell.from_past.weight.grad.dtype == torch.float32
    with using("reference"):
        torch.testing.assert_close(outputs.float(), recur(cell, x, cell.initial_state(2))[0], atol=5e-3, rtol=5e-3)


def test_dropped_weights_are_dropped_in_the_kernel_and_in_its_gradients() -> None:
    torch.manual_seed(0)
    cell = cell_of("lstm", hidden_size=6, weight_dropout=0.5).train()
    x, state = torch.randn(2, 4, 3), carried(cell, 2)
    found = []
    for form in ("generated", "reference"):
        torch.manual_seed(1)
        with using(form), cell.dropping():
            found.append(results(recur, cell, x, state))
    assert_same(*found)


@UNWRITTEN
def test_a_program_that_waits_in_vain_ends_and_says_so() -> None:
    cell = cell_of("rnn", hidden_size=20)
    part = Partition(16, 16, poll="atomic")
    x = torch.randn(1, 2, 3)
    with torch.no_grad(), using("generated"), dividing(forward=part), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel.__call__, "__kwdefaults__", {"partials": None, "patience": 3, "fresh": True})
        recur(cell, x, cell.initial_state(1))
        with pytest.raises(TrainingError, match="timed out"):
            recur(cell, x, cell.initial_state(1))
    with using("generated"):
        recur(cell, x, cell.initial_state(1))


def test_reasons_are_told() -> None:
    with using("generated"):
        assert explain(cell_of("lstm"), torch.zeros(2, 3, 3)) == "generated: a kernel generated for lstm, as asked"
    double = torch.zeros(2, 3, 3, dtype=torch.float64)
    assert (
        compiled_triton.obstacle(cell_of("lstm").double(), double, None)
        == "generated kernels do not compute in float64"
    )
    assert compiled_triton.obstacle(cell_of("lstm"), torch.zeros(0, 3, 3), None) == "the batch is empty"
