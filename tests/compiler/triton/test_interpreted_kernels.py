"""Generated kernels equal the reference loop, in Triton's interpreter."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of, parts_of
from cell_equivalence import assert_same, carried, compare, results
from torch import Tensor
from torch.nn import functional as F

from elman.cells import Cell
from elman.compiler.triton import launcher
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition, SyncMode
from elman.compiler.triton.saved_for_backward import AVAILABLE
from elman.errors import TrainingError
from elman.ops import kernel_timeout
from elman.recurrence import compiled_triton, explain, recur, using
from elman.recurrence.compiled_triton import use_partitions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("triton_interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels themselves"),
]


# programs that do not wait read uninitialized memory
UNWRITTEN = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_single_program_equals_the_reference(case: Any) -> None:
    """Catches gates in another order, and with totals that count padding units."""
    compare(case, 3, 5, 20)
    compare(case, 3, 5, 20, [5, 0, 3])


@pytest.mark.parametrize(("batch", "time", "size"), [(1, 1, 16), (7, 5, 20), (18, 2, 5), (1, 5, 32)])
@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"})], ids=str)
def test_odd_sizes_equal_the_reference(case: Any, batch: int, time: int, size: int) -> None:
    compare(case, batch, time, size)


@contextmanager
def relaunch_until_complete(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter runs programs one after another, so none can wait for another. But nothing in memory is ever
    overwritten by something else: launched repeatedly without waiting, each launch completes one more exchange."""
    call = Kernel.__call__

    def repeated(self: Kernel, history: Tensor, loads: Any, *given: Any) -> Any:
        batch, time = next(iter(loads[0].values())).shape[:2]
        partial_sums = torch.zeros(self.partial_sums(batch, time))
        for launch in range(time * max(1, self.builder.schedule.exchanges) + 1):
            kernel_timeout.ALARMS.clear()
            found = call(self, history, loads, *given, partial_sums=partial_sums, max_spins=0, new_history=launch == 0)
        kernel_timeout.ALARMS.clear()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "__call__", repeated)
        yield


SEVERAL_PROGRAMS = [
    (("lstm", {}), 1, 64, SyncMode.COUNTER, None),
    (("gru", {}), 2, 64, SyncMode.COUNTER, [2, 0, 1]),
    (("gru", {"reset": "before"}), 1, 16, SyncMode.COUNTER, [1, 2, 2]),
    (("layernorm-lstm", {}), 1, 16, SyncMode.COUNTER, None),
    (("invented", {}), 1, 64, SyncMode.COUNTER, None),
    (("lstm", {}), 2, 64, SyncMode.SENTINEL, None),
    (("gru", {"reset": "before"}), 2, 64, SyncMode.SENTINEL, [1, 2, 2]),
    (("layernorm-lstm", {}), 2, 64, SyncMode.SENTINEL, None),
    (("invented", {}), 2, 64, SyncMode.SENTINEL, [2, 0, 1]),
    (("lstm", {}), 2, 64, "register weights", [2, 0, 1]),
    (("gru", {}), 2, 64, "register weights", None),
    (("lstm", {}), 2, 64, "eight rows", [2, 0, 1]),
    (("lstm", {}), 2, 64, "24 units", [2, 0, 1]),
    (("gated", {}), 2, 64, "24 units", None),
    (("layernorm-lstm", {}), 2, 64, "24 units", None),
    (("layernorm-lstm", {}), 2, 64, "eight rows", None),
    (("lstm", {}), 2, 64, "two waits", [2, 0, 1]),
    (("gru", {}), 2, 64, "two waits", None),
    (("lstm", {}), 1, 64, "wgmma", None),
    (("lstm", {}), 2, 64, SyncMode.CLUSTER_BARRIER, [2, 0, 1]),
    (("layernorm-lstm", {}), 2, 64, SyncMode.CLUSTER_BARRIER, None),
    (("gru", {"reset": "before"}), 2, 64, SyncMode.ST_ASYNC, [2, 0, 1]),
    (("layernorm-lstm", {}), 2, 64, SyncMode.ST_ASYNC, None),
]


@UNWRITTEN
@pytest.mark.parametrize(("case", "split_k", "tile_k", "variant", "lengths"), SEVERAL_PROGRAMS, ids=str)
def test_several_programs_equal_the_reference(
    case: Any, split_k: int, tile_k: int, variant: str, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units over two programs, the second mostly padding; K in tiles and split over warps. Catches totals of
    one program's units only, with column halves of register weights exchanged, with blocks of units exchanged, and with
    the first K tile left out."""
    rows, size = 8 if variant == "eight rows" else 16, {"24 units": 40, "two waits": 140}.get(variant, 20)
    part = Partition(rows, 16, split_k=split_k, tile_k=tile_k, sync=variant)
    if variant == "wgmma":
        part = replace(part, sync=SyncMode.COUNTER, wgmma=True)
    elif variant in ("register weights", "eight rows", "24 units", "two waits"):
        part = replace(part, sync=SyncMode.SENTINEL, register_tiles=int(variant == "register weights"))
        part = replace(part, loads_in_flight=2) if variant == "two waits" else part
    ahead = replace(part, units=24) if variant == "24 units" else part
    with use_partitions(forward=ahead, backward=part), relaunch_until_complete(monkeypatch):
        compare(case, 3, 2, size, lengths)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("units", "rest"), [(16, 0), (12, 0), (16, 1), (15, 0)])
def test_packed_pairs_of_16_bit_inputs_are_unpacked_exactly(
    kind: torch.dtype, units: int, rest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows are an even number of elements apart and H is even. Catches halves exchanged, with the bits
    of the wrong dtype, and with strides in elements instead of pairs."""
    torch.manual_seed(0)
    cell = cell_of("lstm", hidden_size=units).to(kind)
    whole = cell.drive
    monkeypatch.setattr(cell, "drive", lambda x: F.pad(whole(x), (0, rest))[..., : 4 * units])
    x, state = torch.randn(3, 5, 3, dtype=kind), carried(cell, 3)
    loaded, found = [], []
    for sync in (SyncMode.CLUSTER_BARRIER, SyncMode.COUNTER):
        part = Partition(16, 16, sync=sync)
        with use_partitions(forward=part, backward=part), using("generated"), monkeypatch.context() as patch:
            patch.setattr(launcher, "_packed_pairs", recording_dtypes(loaded))
            found.append(results(recur, cell, x, state))
    expected = [] if units % 2 else [kind if rest else torch.int32] * 4
    assert loaded == expected
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def recording_dtypes(loaded: list[torch.dtype]) -> Any:
    """Records the dtypes of the first inputs that a kernel loads."""
    packed = launcher._packed_pairs

    def recording(tensors: Any, dtype: torch.dtype) -> Any:
        made = packed(tensors, dtype)
        if len(loaded) < 4:
            loaded.append(made[0].dtype)
        return made

    return recording


@pytest.mark.parametrize("lengths", [None, [5, 0, 3]])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_reverse_equals_forward_over_reversed_rows(name: str, lengths: list[int] | None) -> None:
    torch.manual_seed(0)
    cell = cell_of(name, hidden_size=6)
    x, state = torch.randn(3, 5, 3), carried(cell, 3)
    rows = None if lengths is None else torch.tensor(lengths)
    ends = torch.full((3,), 5) if rows is None else rows
    places = torch.arange(5).expand(3, 5)
    places = torch.where(places < ends.unsqueeze(1), ends.unsqueeze(1) - 1 - places, places)
    flip = torch.arange(3).unsqueeze(1), places

    def reverse(cell: Cell, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
        return compiled_triton.run(cell, x, state, lengths, reverse=True)

    def flipped(cell: Cell, x: Tensor, state: Any, lengths: Tensor | None) -> Any:
        with using("reference"):
            outputs, final = recur(cell, x[flip], state, lengths)
        return outputs[flip], final

    assert_same(results(reverse, cell, x, state, rows), results(flipped, cell, x, state, rows))


@pytest.mark.parametrize("read", ["outputs", "first part", "last part"])
@pytest.mark.parametrize("case", [("lstm", {}), ("gru", {"reset": "before"}), ("invented", {})], ids=str)
def test_unused_outputs_have_no_gradient(case: Any, read: str) -> None:
    """Catches ones for missing gradients."""
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
def test_backward_recomputes_no_products(case: Any) -> None:
    """Seen to fail where products behind one number per row were not saved."""
    for ragged in (False, True):
        compiled = compiled_triton.compiled_cell(cell_of(*case, hidden_size=20), ragged)
        plan, nodes = compiled.save_plan, compiled.step.nodes
        inputs = plan.recompute(4).inputs if plan.recomputed else plan.needed
        assert all(index in plan.saved or nodes[index].op in AVAILABLE for index in inputs)


@pytest.mark.parametrize(("name", "kept"), [("lstm", False), ("layernorm-lstm", True)])
def test_step_inputs_are_saved_only_if_backward_reads_them(name: str, kept: bool) -> None:
    """Seen to fail where they were always saved."""
    cell = cell_of(name, hidden_size=20)
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.untyped_storage().nbytes() if tensor.shape == (3, 5, 80) else 0)
        return tensor

    with using("generated"), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        recur(cell, torch.randn(3, 5, 3), cell.initial_state(3))
    assert (3 * 5 * 80 * 4 in saved) is kept


def test_under_autocast_outputs_are_float16_and_states_float32() -> None:
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


def test_weight_dropout_holds_in_the_kernel_and_in_its_gradients() -> None:
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
def test_a_program_that_times_out_ends_and_the_next_call_raises() -> None:
    cell = cell_of("rnn", hidden_size=20)
    part = Partition(16, 16)
    x = torch.randn(1, 2, 3)
    with torch.no_grad(), using("generated"), use_partitions(forward=part), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel.__call__, "__kwdefaults__", {"partial_sums": None, "max_spins": 3, "new_history": True})
        recur(cell, x, cell.initial_state(1))
        with pytest.raises(TrainingError, match="timed out"):
            recur(cell, x, cell.initial_state(1))
    with using("generated"):
        recur(cell, x, cell.initial_state(1))


def test_explain_names_the_form_or_the_obstacle() -> None:
    with using("generated"):
        assert explain(cell_of("lstm"), torch.zeros(2, 3, 3)) == "generated: a kernel generated for lstm, as asked"
    double = torch.zeros(2, 3, 3, dtype=torch.float64)
    assert (
        compiled_triton.obstacle(cell_of("lstm").double(), double, None)
        == "generated kernels do not compute in float64"
    )
    assert compiled_triton.obstacle(cell_of("lstm"), torch.zeros(0, 3, 3), None) == "the batch is empty"
