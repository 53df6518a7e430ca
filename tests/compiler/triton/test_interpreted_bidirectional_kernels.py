"""A bidirectional launch equals two runs, in Triton's interpreter."""

from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of, parts_of
from cell_equivalence import assert_same, carried
from test_interpreted_kernels import UNWRITTEN, relaunch_until_complete
from torch import Tensor

from benchmarks.recurrence.cases import Case
from benchmarks.recurrence.checking import check
from benchmarks.recurrence.peers import variants
from elman.cells import Cell
from elman.compiler.cell_program import active_weight
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition, SyncMode
from elman.layers.bidirectional import Bidirectional, Ends, reverse
from elman.ops import kernel_timeout
from elman.recurrence import apart, compiled_triton, recur, recur_both, using
from elman.recurrence.compiled_triton import use_partitions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("triton_interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels themselves"),
]


Pair = tuple[Cell, Cell]


def pair(case: Any, **more: Any) -> Pair:
    return cell_of(*case, **more), cell_of(*case, **more)


def in_turn(cells: Pair, x: Tensor, states: Any, lengths: Tensor | None) -> Any:
    """The definition: the second cell runs over reversed rows, and its outputs are reversed back."""
    with using("reference"):
        ahead = recur(cells[0], x, states[0], lengths)
        back, last = recur(cells[1], reverse(x, lengths), states[1], lengths)
    return ahead, (reverse(back, lengths), last)


def at_once(cells: Pair, x: Tensor, states: Any, lengths: Tensor | None) -> Any:
    with using("generated"):
        assert apart(*cells, x, lengths) is None
        return recur_both(*cells, x, states, lengths)


def results(
    run: Any, cells: Pair, x: Tensor, states: list[list[Tensor]], lengths: Tensor | None
) -> list[Tensor | None]:
    """Outputs at real positions, last states, all gradients of a loss that weights every element differently."""
    x = x.clone().requires_grad_()
    states = [[part.clone().requires_grad_() for part in own] for own in states]
    form = cells[0].initial_state(1)
    given = [own[0] if isinstance(form, Tensor) else type(form)(*own) for own in states]
    (ahead, last), (back, first) = run(cells, x, given, lengths)
    outputs, ends = torch.cat([ahead, back], -1), [*parts_of(last), *parts_of(first)]
    if lengths is not None:
        outputs = outputs * (torch.arange(x.shape[1]) < lengths.unsqueeze(1)).unsqueeze(-1)
    loss = (outputs * torch.linspace(-1, 2, outputs.numel()).view_as(outputs)).sum()
    loss = loss + sum(weight * (part**2).sum() for weight, part in enumerate(ends, 1))
    for cell in cells:
        cell.zero_grad()
    loss.backward()
    leaves = [x, *(part for own in states for part in own), *(one for cell in cells for one in cell.parameters())]
    return [outputs.detach(), *(part.detach() for part in ends), *(leaf.grad for leaf in leaves)]


def compare(
    case: Any, batch: int, time: int, size: int, lengths: list[int] | None = None, tolerance: float = 2e-5
) -> None:
    torch.manual_seed(batch)
    cells = pair(case, hidden_size=size)
    x, states = torch.randn(batch, time, 3), [carried(cell, batch) for cell in cells]
    rows = None if lengths is None else torch.tensor(lengths)
    found = [results(run, cells, x, states, rows) for run in (at_once, in_turn)]
    assert_same(*found, tolerance=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_launch_equals_two_runs(case: Any) -> None:
    compare(case, 3, 3, 20, [3, 0, 2])


@pytest.mark.parametrize(("batch", "time", "size"), [(1, 1, 16), (18, 3, 5)])
def test_odd_sizes_too(batch: int, time: int, size: int) -> None:
    compare(("lstm", {}), batch, time, size)


@UNWRITTEN
@pytest.mark.parametrize(("case", "lengths"), [(("gru", {}), [2, 0, 1]), (("invented", {}), None)], ids=str)
@pytest.mark.parametrize("sync", [SyncMode.COUNTER, SyncMode.SENTINEL])
def test_several_programs_per_direction_equal_two_runs(
    case: Any, lengths: list[int] | None, sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invented cell has totals, with partial sums for each direction."""
    part = Partition(16, 16, split_k=2 if sync == SyncMode.SENTINEL else 1, tile_k=64, sync=sync)
    with use_partitions(forward=part, backward=part), relaunch_until_complete(monkeypatch):
        compare(case, 3, 2, 20, lengths)


@UNWRITTEN
def test_each_group_of_each_direction_has_its_own_counter() -> None:
    """Nothing waits in the interpreter, so wrong counts would hang on a GPU only. Catches shared counters."""
    made = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=20))
    assert isinstance(made, compiled_triton.CompiledCell)
    kernel = Kernel(made.step, made.step.outputs, Partition(16, 16), torch.float32, False, "ieee", True)
    launched, counters = kernel.run, list[Tensor]()

    class Recording:
        def __getitem__(self, grid: Any) -> Any:
            def launch(time: int, batch: int, max_spins: int, counted: Tensor, *given: Any, **options: Any) -> None:
                counters.append(counted)
                launched[grid](time, batch, max_spins, counted, *given, **options)

            return launch

    kernel.run = Recording()
    cells = pair(("lstm", {}), hidden_size=20)
    weights = [{name: active_weight(cell, name) for name in made.names} for cell in cells]
    history = torch.zeros(2, len(kernel.stored), kernel.rows(20), 4, kernel.width)
    loads = [{("drive", part): torch.zeros(20, 3, 20) for part in range(4)}] * 2
    kernel(history, loads, [parts_of(cell.initial_state(20)) for cell in cells], weights, max_spins=0)
    kernel_timeout.ALARMS.clear()
    programs, groups, steps = 2, 2, 3
    assert counters[0].view(-1, 32)[:, 0].tolist() == [programs * steps] * (2 * groups)


def test_an_unused_direction_has_no_gradient() -> None:
    """Its gradient is an expanded zero, with other strides than the gradient of the used direction."""
    cells = pair(("gru", {}), hidden_size=6)
    x, states = torch.randn(2, 3, 3), [cell.initial_state(2) for cell in cells]
    found = []
    for run in (at_once, in_turn):
        _, (back, _) = run(cells, x, states, None)
        leaves = [one for cell in cells for one in cell.parameters()]
        beside = torch.cat([back, torch.ones_like(back)], -1)  # its gradient has gaps between rows
        found.append(torch.autograd.grad((beside**2).sum(), leaves, allow_unused=True))
    assert_same(list(found[0]), list(found[1]))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of directions of each launch."""
    call, seen = Kernel.__call__, list[int]()

    def counted(self: Kernel, *given: Any, **options: Any) -> Any:
        seen.append(self.directions)
        return call(self, *given, **options)

    monkeypatch.setattr(Kernel, "__call__", counted)
    return seen


def layer_of(inner: Any, **settings: Any) -> Bidirectional:
    torch.manual_seed(0)
    return Bidirectional(Bidirectional.Config.make({"layer": inner, "hidden_size": 6, **settings}), 3)


def trained(layer: Bidirectional, form: str, x: Tensor, state: Ends, lengths: Tensor | None) -> list[Tensor | None]:
    torch.manual_seed(1)
    layer.zero_grad()
    x = x.clone().requires_grad_()
    with using(form):
        outputs, ends = layer(x, state, lengths)
        ends = [part for own in ends for part in parts_of(own)]
        (outputs.cumsum(-1).square().sum() + sum(part.square().sum() for part in ends)).backward()
    return [outputs.detach(), *(part.detach() for part in ends), x.grad, *(one.grad for one in layer.parameters())]


@pytest.mark.parametrize(
    "settings", [{"inner": "lstm"}, {"inner": "gru", "join": "sum"}, {"inner": "peephole", "weight_dropout": 0.5}]
)
def test_a_bidirectional_layer_takes_one_launch_forward_and_one_backward(settings: Any, launches: list[int]) -> None:
    """Each direction has its own weight dropout mask."""
    layer = layer_of(**settings).train()
    x = torch.randn(2, 4, 3)
    state = Ends(
        *(
            type(own)(*map(torch.rand_like, own)) if isinstance(own, tuple) else torch.rand_like(own)
            for own in layer.initial_state(2)
        )
    )
    found = trained(layer, "generated", x, state, None)
    assert launches == [2, 2]
    assert_same(found, trained(layer, "reference", x, state, None))
    assert launches == [2, 2]


def test_directions_that_cannot_share_a_launch_take_two_and_explain_why(
    launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = layer_of("gru"), torch.randn(2, 3, 3)
    with using("generated"):
        shared = "both ways: generated: a kernel generated for gru, as asked, both directions in one launch"
        assert layer.explain(2, 3) == shared
        layer.back = layer_of({"gru": {"reset": "before"}}).back
        assert layer.explain(2, 3).endswith("as asked, two launches: the two cells differ in architecture or dtype")
        layer(x)
        assert launches == [1, 1]
    search = compiled_triton.CompiledCell.partition
    monkeypatch.setattr(
        compiled_triton.CompiledCell,
        "partition",
        lambda self, *given, directions=1: None if 2 in (directions, *given[4:]) else search(self, *given),
    )
    with using("generated"):
        assert (
            layer_of("lstm")
            .explain(2, 3)
            .endswith("two launches: twice 2 rows and 6 units of lstm do not fit on this GPU at once")
        )
        found = trained(layer_of("lstm"), "generated", x, layer_of("lstm").initial_state(2), None)
    assert launches == [1] * 6
    assert_same(found, trained(layer_of("lstm"), "reference", x, layer_of("lstm").initial_state(2), None))


def test_under_autocast_outputs_are_float16_and_states_float32() -> None:
    layer, x = layer_of("lstm"), torch.randn(2, 4, 3)
    with torch.autocast("cpu", torch.float16), using("generated"):
        outputs, ends = layer(x)
        outputs.float().sum().backward()
    assert outputs.dtype == torch.float16
    assert {part.dtype for own in ends for part in own} == {torch.float32}
    with using("reference"):
        torch.testing.assert_close(outputs.float(), layer(x)[0], atol=5e-3, rtol=5e-3)


def test_the_benchmark_times_one_launch_beside_two_and_both_are_right(launches: list[int]) -> None:
    case = Case("lstm", (2, 3, 6), form="both ways", kinds=("fp32",), precision="highest")
    assert check(case, "fp32", "cpu", "generated")["verdict"] == "right"
    made = variants(case, ["fp32"], [], "cpu", "generated")
    launches.clear()
    for name, ways in (("ours fp32", [2, 2]), ("ours fp32, two launches", [1, 1, 1, 1])):
        made[name].training()
        assert launches == ways
        launches.clear()
    one, two = (made[name].outputs() for name in ("ours fp32", "ours fp32, two launches"))
    torch.testing.assert_close(one, two)
