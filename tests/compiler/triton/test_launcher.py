"""Arguments of a generated kernel's launch, and that each setting changes it; launches are recorded, not run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from cell_cases import cell_of, parts_of
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.triton import launcher, saved_for_backward
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition, SyncMode
from elman.recurrence import compiled_triton
from elman.recurrence.compiled_triton import use_partitions

TWO_PROGRAMS = Partition(16, 16)


class Launch(NamedTuple):
    source: str
    direct: bool
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class RecordingKernel:
    """Stands for a JIT function: a launch returns the compiled kernel, which is launched in the same way."""

    def __init__(self, source: str, log: list[Launch], compiles: bool = True, direct: bool = False):
        self.source, self.log, self.compiles, self.direct = source, log, compiles, direct
        self.warm: RecordingKernel | None = None
        self.metadata: Any = None
        self.packed_metadata: Any = None

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Any]:
        def launch(*arguments: Any, **options: Any) -> Any:
            self.log.append(Launch(self.source, self.direct, grid, arguments, options))
            return RecordingKernel(self.source, self.log, direct=True) if self.compiles and not self.direct else None

        return launch

    def warmup(self, *arguments: Any, grid: tuple[int, int, int], num_warps: int, num_stages: int) -> "RecordingKernel":
        """Compiles without a launch, once."""
        if self.warm is None:
            self.warm = RecordingKernel(self.source, self.log, direct=True)
            self.warm.metadata = SimpleNamespace(shared=60_000, num_warps=num_warps)
        return self.warm

    def _init_handles(self) -> None:
        """Loads the binary, in Triton."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    found: list[Launch] = []
    for place, own in ((launcher, found), (saved_for_backward, [])):
        monkeypatch.setattr(
            place, "load_module", lambda source, own=own: SimpleNamespace(kernel=RecordingKernel(source, own))
        )
    return found


class Call(NamedTuple):
    """A kernel and its arguments, so that two calls differ in one argument only."""

    kernel: Kernel
    history: Tensor
    loads: list[dict[tuple[str, int], Tensor]]
    initial: list[list[Tensor]]
    weights: list[dict[str, Tensor]]

    def __call__(self, lengths: Tensor | None = None) -> None:
        self.kernel(self.history, self.loads, self.initial, self.weights, lengths)


def call_of(
    directions: int = 1,
    part: Partition = TWO_PROGRAMS,
    size: int = 32,
    batch: int = 5,
    time: int = 3,
    name: str = "lstm",
) -> Call:
    cell = cell_of(name, hidden_size=size)
    made = compiled_triton.compiled_cell(cell)
    assert isinstance(made, compiled_triton.CompiledCell)
    one = Kernel(made.step, made.stored(True), part, torch.float32, False, "ieee", directions == 2)
    history = torch.empty(directions, len(one.stored), one.rows(batch), time + 1, one.width)
    loads = [{("drive", n): torch.randn(batch, time, size) for n in range(4)} for _ in range(directions)]
    initial = [parts_of(cell.initial_state(batch)) for _ in range(directions)]
    weights = {name: cell.get_parameter(name).detach() for name in made.names}
    return Call(one, history, loads, initial, [weights] * directions)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(
    "part", [TWO_PROGRAMS, Partition(16, 32), Partition(16, 16, sync=SyncMode.SENTINEL, split_k=2)]
)
def test_a_direct_launch_has_the_arguments_of_the_first_one(
    directions: int, part: Partition, log: list[Launch]
) -> None:
    """Seen to fail without the last argument."""
    call = call_of(directions, part)
    lengths = torch.tensor([3, 0, 2, 3, 1], dtype=torch.int32)
    call(lengths)
    call(lengths)
    first, second = log
    assert (first.direct, second.direct) == (False, True)
    assert first.options["num_warps"] == part.warps
    assert second.options == {}
    assert first.grid == second.grid == (1, part.programs(32), directions)
    assert len(first.arguments) == len(second.arguments)
    new_tensors = 0
    for a, b in zip(first.arguments, second.arguments, strict=True):
        assert type(a) is type(b)
        if not isinstance(a, Tensor):
            assert a == b
            continue
        assert (a.dtype, a.shape, a.stride(), a.device) == (b.dtype, b.shape, b.stride(), b.device)
        new_tensors += a.data_ptr() != b.data_ptr()
    assert new_tensors <= 4  # counters, last state, and its stand-ins for unused outputs


def moved(one: Tensor) -> Tensor:
    """The same values at an address that is not a multiple of 16."""
    return torch.empty(one.numel() + 1, dtype=one.dtype)[1:].view_as(one).copy_(one)


def spread(one: Tensor) -> Tensor:
    """The same values with another row stride."""
    return nn.functional.pad(one, (0, 1))[..., :-1]


RESPECIALIZED = [(change, where) for change in (Tensor.half, moved) for where in ("load", "initial", "weight")]


@pytest.mark.parametrize(("change", "where"), [*RESPECIALIZED, (spread, "load"), (spread, "initial")])
def test_arguments_that_triton_would_specialize_for_are_not_launched_directly(
    change: Callable[[Tensor], Tensor], where: str, log: list[Launch]
) -> None:
    """Catches keys without dtype, without alignment, and without integers."""
    call = call_of()
    call()
    if where == "load":
        call.loads[0]["drive", 2] = change(call.loads[0]["drive", 2])
    elif where == "initial":
        call.initial[0][1] = change(call.initial[0][1])
    else:
        call.weights[0]["from_past.weight"] = change(call.weights[0]["from_past.weight"])
    call()
    call()
    assert [launch.direct for launch in log] == [False, False, True]


@given(st.integers(0, 2**33), st.integers(0, 2**33) | st.sampled_from([1, 16, 17, 2**31 - 1, 2**31]))
def test_integers_with_equal_keys_are_equal_to_triton(a: int, b: int) -> None:
    """Catches a key without the width in bits."""
    native = pytest.importorskip("triton._C.libtriton")
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")

    def specialised(value: int) -> Any:
        return native.native_specialize_impl(compiler.CUDABackend, value, False, True, True)

    for one in (b, a + 16 * b, a ^ 1):
        if launcher._specialization_key(a) == launcher._specialization_key(one):
            assert specialised(a) == specialised(one)


def test_the_interpreter_is_never_launched_directly(log: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = RecordingKernel("", log, compiles=False)
    monkeypatch.setattr(launcher, "load_module", lambda source: SimpleNamespace(kernel=interpreter))
    call = call_of()
    call()
    call()
    assert [launch.direct for launch in log] == [False, False]


# settings that change between two calls


class TrainingDependent(Cell):
    """Its step differs between training and evaluation."""

    name = "training dependent"

    def __init__(self) -> None:
        super().__init__(Cell.Config(hidden_size=16), 3)
        self.from_input, self.from_past = nn.Linear(3, 16), PastProduct(16, 1)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = drive + self.from_past(state)
        new = torch.tanh(new) if self.training else torch.sigmoid(new)
        return new, new


def launched(log: list[Launch], cell: Cell, lengths: Tensor | None = None) -> list[Launch]:
    """The launches of a forward and a backward pass."""
    log.clear()
    x = torch.randn(2, 3, 3)
    outputs, _ = compiled_triton.run(cell, x, cell.initial_state(2), lengths)
    outputs.sum().backward()
    assert len(log) == 2
    return list(log)


def around(log: list[Launch], cell: Cell, setting: AbstractContextManager[Any]) -> list[list[Launch]]:
    """Launches before, under and after a setting; of each the second, which uses everything that is cached."""
    found = []
    for context in (nullcontext(), setting, nullcontext()):
        with context:
            launched(log, cell)
            found.append(launched(log, cell))
    return found


@contextmanager
def precision(kind: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(kind)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def test_another_matmul_precision_takes_another_kernel(log: list[Launch]) -> None:
    with precision("highest"):
        found = around(log, cell_of("lstm", hidden_size=16), precision("high"))
    for before, there, after in zip(*found, strict=True):
        assert 'input_precision="ieee"' in before.source
        assert 'input_precision="tf32"' in there.source
        assert after.source == before.source


def test_autocast_takes_another_kernel_and_weights_of_its_dtype(log: list[Launch]) -> None:
    casting = torch.autocast("cpu", torch.float16)
    for before, there, after in zip(*around(log, cell_of("lstm", hidden_size=16), casting), strict=True):
        for launch, kind in ((before, torch.float32), (there, torch.float16), (after, torch.float32)):
            history, weight = launch.arguments[6], launch.arguments[13]
            assert history.dtype == weight.dtype == kind
        assert there.source != before.source == after.source


def test_another_partition_takes_another_kernel(log: list[Launch]) -> None:
    asked = use_partitions(forward=TWO_PROGRAMS, backward=TWO_PROGRAMS)
    for before, there, after in zip(*around(log, cell_of("lstm", hidden_size=32), asked), strict=True):
        assert before.grid == after.grid == (1, 1, 1)
        assert there.grid == (1, 2, 1)
        assert "wait_counter(counter" in there.source
        assert after.source == before.source


def test_training_and_evaluation_take_kernels_of_their_own(log: list[Launch]) -> None:
    cell = TrainingDependent()
    (training, _), (evaluating, _) = launched(log, cell.train()), launched(log, cell.eval())
    assert "tanh(v" in training.source
    assert "tanh(v" not in evaluating.source
    assert launched(log, cell.train())[0].source == training.source


def test_rows_of_unequal_length_take_a_kernel_of_their_own(log: list[Launch]) -> None:
    cell = cell_of("gru", hidden_size=16)
    full, ragged = launched(log, cell), launched(log, cell, torch.tensor([3, 1]))
    assert "t < length" in ragged[0].source
    assert "t < length" not in full[0].source
    assert ragged[0].arguments[5].tolist() == [3, 1]


def test_weights_in_another_dtype_take_another_kernel(log: list[Launch]) -> None:
    cell = cell_of("lstm", hidden_size=16)
    whole = launched(log, cell)[0]
    cell.to(torch.bfloat16)
    log.clear()
    compiled_triton.run(cell, torch.randn(2, 3, 3, dtype=torch.bfloat16), cell.initial_state(2), None)
    assert log[0].arguments[6].dtype == log[0].arguments[13].dtype == torch.bfloat16
    assert log[0].source != whole.source


def test_another_batch_size_and_length_change_the_launch(log: list[Launch]) -> None:
    cell = cell_of("lstm", hidden_size=16)
    for batch, time in ((2, 3), (2, 5), (20, 3), (2, 3)):
        log.clear()
        with torch.no_grad():
            compiled_triton.run(cell, torch.randn(batch, time, 3), cell.initial_state(batch), None)
        assert log[0].arguments[:2] == (time, batch)
        assert log[0].grid == (-(-batch // 16), 1, 1)
        assert log[0].arguments[6].shape == (1, 1, -(-batch // 16) * 16, time + 1, 16)


def test_each_call_reads_the_current_weights(log: list[Launch]) -> None:
    """Seen to fail where the weights of the first call were cached."""
    cell = cell_of("lstm", hidden_size=16, weight_dropout=0.5).train()
    launched(log, cell)
    cell.from_past.weight = nn.Parameter(torch.randn_like(cell.from_past.weight))
    for launch in launched(log, cell):
        assert launch.arguments[13].data_ptr() == cell.from_past.weight.data_ptr()
    with cell.dropping():
        for launch in launched(log, cell):
            assert launch.arguments[13].data_ptr() == cell.from_past.weight_in_use.data_ptr()
            assert (launch.arguments[13] == 0).any()


@pytest.mark.parametrize("sync", [SyncMode.CLUSTER_BARRIER, SyncMode.ST_ASYNC])
@pytest.mark.parametrize("directions", [1, 2])
def test_clusters_are_launched_with_room_for_the_exchange_buffer(directions: int, sync: str, log: list[Launch]) -> None:
    """Two specialization keys share a compiled kernel. Catches shared memory that grew with each of them."""
    call = call_of(directions, Partition(16, 16, sync=sync, split_k=2), batch=20, name="layernorm-lstm")
    call()
    call._replace(history=torch.empty(*call.history.shape[:4], 40)[..., :32])()
    assert len(call.kernel.compiled) == 2
    assert [launch.grid for launch in log] == [(2, 1, directions)] * 2  # two groups of rows; the grid counts clusters
    assert all(launch.direct for launch in log)
    assert call.kernel.exchange is not None
    (compiled,) = {id(one): one for one in call.kernel.compiled.values()}.values()
    assert compiled.packed_metadata == (4, 2, 60_032 + call.kernel.exchange.total_bytes)
