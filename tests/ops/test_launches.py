"""What a call of a generated kernel hands to its launch, and that no changed setting is overlooked. Needs no GPU: a
launch is written down instead."""

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
from elman.compiler.triton import launcher, recompute
from elman.compiler.triton.cluster import Mailbox
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition
from elman.recurrence import compiled_triton
from elman.recurrence.compiled_triton import dividing

TWO = Partition(16, 16, poll="atomic")


class Launch(NamedTuple):
    source: str
    direct: bool
    grid: tuple[int, int, int]
    given: tuple[Any, ...]
    options: dict[str, Any]


class Launcher:
    """Like a function of Triton: launched by grid, it gives what it compiled, which can be launched in the same way."""

    def __init__(self, source: str, log: list[Launch], compiles: bool = True, direct: bool = False):
        self.source, self.log, self.compiles, self.direct = source, log, compiles, direct
        self.warm: Launcher | None = None
        self.metadata: Any = None
        self.packed_metadata: Any = None

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Any]:
        def launch(*given: Any, **options: Any) -> Any:
            self.log.append(Launch(self.source, self.direct, grid, given, options))
            return Launcher(self.source, self.log, direct=True) if self.compiles and not self.direct else None

        return launch

    def warmup(self, *given: Any, grid: tuple[int, int, int], num_warps: int, num_stages: int) -> "Launcher":
        """Compiles without a launch; what was once compiled is given again."""
        if self.warm is None:
            self.warm = Launcher(self.source, self.log, direct=True)
            self.warm.metadata = SimpleNamespace(shared=60_000, num_warps=num_warps)
        return self.warm

    def _init_handles(self) -> None:
        """Triton loads what it compiled when it is first needed."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    found: list[Launch] = []
    for place, own in ((launcher, found), (recompute, [])):
        monkeypatch.setattr(place, "module", lambda source, own=own: SimpleNamespace(kernel=Launcher(source, own)))
    return found


class Called(NamedTuple):
    """A kernel and all that it is given, so that a second call differs in what we change only."""

    kernel: Kernel
    history: Tensor
    loads: list[dict[tuple[str, int], Tensor]]
    initial: list[list[Tensor]]
    weights: list[dict[str, Tensor]]

    def __call__(self, lengths: Tensor | None = None) -> None:
        self.kernel(self.history, self.loads, self.initial, self.weights, lengths)


def called(
    ways: int = 1, part: Partition = TWO, size: int = 32, batch: int = 5, time: int = 3, name: str = "lstm"
) -> Called:
    cell = cell_of(name, hidden_size=size)
    made = compiled_triton.plan(cell)
    assert isinstance(made, compiled_triton.Plan)
    one = Kernel(made.step, made.stored(True), part, torch.float32, False, "ieee", ways == 2)
    history = torch.empty(ways, len(one.emitted.stored), one.rows(batch), time + 1, one.width)
    loads = [{("drive", n): torch.randn(batch, time, size) for n in range(4)} for _ in range(ways)]
    initial = [parts_of(cell.initial_state(batch)) for _ in range(ways)]
    weights = {name: cell.get_parameter(name).detach() for name in made.names}
    return Called(one, history, loads, initial, [weights] * ways)


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("part", [TWO, Partition(16, 32, poll="atomic"), Partition(16, 16, poll="data", split=2)])
def test_a_direct_launch_is_given_what_the_first_one_was(ways: int, part: Partition, log: list[Launch]) -> None:
    """Planted: the direct launch without its last argument."""
    call = called(ways, part)
    lengths = torch.tensor([3, 0, 2, 3, 1], dtype=torch.int32)
    call(lengths)
    call(lengths)
    first, second = log
    assert (first.direct, second.direct) == (False, True)
    assert first.options["num_warps"] == part.warps
    assert second.options == {}
    assert first.grid == second.grid == (1, part.programs(32), ways)
    assert len(first.given) == len(second.given)
    made_anew = 0
    for a, b in zip(first.given, second.given, strict=True):
        assert type(a) is type(b)
        if not isinstance(a, Tensor):
            assert a == b
            continue
        assert (a.dtype, a.shape, a.stride(), a.device) == (b.dtype, b.shape, b.stride(), b.device)
        made_anew += a.data_ptr() != b.data_ptr()
    assert made_anew <= 4  # counters, last state, and what stands for it where nothing is summed


def moved(one: Tensor) -> Tensor:
    """The same, where no 16 bytes begin."""
    return torch.empty(one.numel() + 1, dtype=one.dtype)[1:].view_as(one).copy_(one)


def spread(one: Tensor) -> Tensor:
    """The same, in rows of another distance."""
    return nn.functional.pad(one, (0, 1))[..., :-1]


ANEW = [(change, where) for change in (Tensor.half, moved) for where in ("load", "initial", "weight")]


@pytest.mark.parametrize(("change", "where"), [*ANEW, (spread, "load"), (spread, "initial")])
def test_what_triton_would_compile_anew_is_not_launched_directly(
    change: Callable[[Tensor], Tensor], where: str, log: list[Launch]
) -> None:
    """Planted: a key without dtypes, without alignment, without numbers."""
    call = called()
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
def test_numbers_of_one_sort_are_one_to_triton(a: int, b: int) -> None:
    """Planted: a sort without the number of bits."""
    native = pytest.importorskip("triton._C.libtriton")
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")

    def specialised(value: int) -> Any:
        return native.native_specialize_impl(compiler.CUDABackend, value, False, True, True)

    for one in (b, a + 16 * b, a ^ 1):
        if launcher._sort(a) == launcher._sort(one):
            assert specialised(a) == specialised(one)


def test_what_compiles_nothing_is_launched_plainly(log: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = Launcher("", log, compiles=False)
    monkeypatch.setattr(launcher, "module", lambda source: SimpleNamespace(kernel=interpreter))
    call = called()
    call()
    call()
    assert [launch.direct for launch in log] == [False, False]


# settings that change between two calls


class Changing(Cell):
    """A step that is another one in training."""

    name = "changing"

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
    """Of forward and backward."""
    log.clear()
    x = torch.randn(2, 3, 3)
    outputs, _ = compiled_triton.run(cell, x, cell.initial_state(2), lengths)
    outputs.sum().backward()
    assert len(log) == 2
    return list(log)


def there_and_back(log: list[Launch], cell: Cell, setting: AbstractContextManager[Any]) -> list[list[Launch]]:
    """Before, while and after something is set; each twice, so that what is kept would be used."""
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


def test_a_changed_precision_of_products_takes_another_kernel(log: list[Launch]) -> None:
    with precision("highest"):
        found = there_and_back(log, cell_of("lstm", hidden_size=16), precision("high"))
    for before, there, after in zip(*found, strict=True):
        assert 'input_precision="ieee"' in before.source
        assert 'input_precision="tf32"' in there.source
        assert after.source == before.source


def test_autocast_takes_another_kernel_and_weights_of_its_dtype(log: list[Launch]) -> None:
    casting = torch.autocast("cpu", torch.float16)
    for before, there, after in zip(*there_and_back(log, cell_of("lstm", hidden_size=16), casting), strict=True):
        for launch, kind in ((before, torch.float32), (there, torch.float16), (after, torch.float32)):
            history, weight = launch.given[6], launch.given[13]
            assert history.dtype == weight.dtype == kind
        assert there.source != before.source == after.source


def test_another_division_takes_another_kernel(log: list[Launch]) -> None:
    asked = dividing(forward=TWO, backward=TWO)
    for before, there, after in zip(*there_and_back(log, cell_of("lstm", hidden_size=32), asked), strict=True):
        assert before.grid == after.grid == (1, 1, 1)
        assert there.grid == (1, 2, 1)
        assert "wait(counter" in there.source
        assert after.source == before.source


def test_training_and_evaluation_take_kernels_of_their_own(log: list[Launch]) -> None:
    cell = Changing()
    (training, _), (evaluating, _) = launched(log, cell.train()), launched(log, cell.eval())
    assert "tanh(v" in training.source
    assert "tanh(v" not in evaluating.source
    assert launched(log, cell.train())[0].source == training.source


def test_rows_of_unequal_length_take_a_kernel_of_their_own(log: list[Launch]) -> None:
    cell = cell_of("gru", hidden_size=16)
    full, ragged = launched(log, cell), launched(log, cell, torch.tensor([3, 1]))
    assert "t < length" in ragged[0].source
    assert "t < length" not in full[0].source
    assert ragged[0].given[5].tolist() == [3, 1]


def test_weights_in_another_dtype_take_another_kernel(log: list[Launch]) -> None:
    cell = cell_of("lstm", hidden_size=16)
    whole = launched(log, cell)[0]
    cell.to(torch.bfloat16)
    log.clear()
    compiled_triton.run(cell, torch.randn(2, 3, 3, dtype=torch.bfloat16), cell.initial_state(2), None)
    assert log[0].given[6].dtype == log[0].given[13].dtype == torch.bfloat16
    assert log[0].source != whole.source


def test_another_number_of_rows_and_steps_is_seen(log: list[Launch]) -> None:
    cell = cell_of("lstm", hidden_size=16)
    for batch, time in ((2, 3), (2, 5), (20, 3), (2, 3)):
        log.clear()
        with torch.no_grad():
            compiled_triton.run(cell, torch.randn(batch, time, 3), cell.initial_state(batch), None)
        assert log[0].given[:2] == (time, batch)
        assert log[0].grid == (-(-batch // 16), 1, 1)
        assert log[0].given[6].shape == (1, 1, -(-batch // 16) * 16, time + 1, 16)


def test_weights_of_the_call_at_hand_are_read(log: list[Launch]) -> None:
    """Planted: weights kept from the first call."""
    cell = cell_of("lstm", hidden_size=16, weight_dropout=0.5).train()
    launched(log, cell)
    cell.from_past.weight = nn.Parameter(torch.randn_like(cell.from_past.weight))
    for launch in launched(log, cell):
        assert launch.given[13].data_ptr() == cell.from_past.weight.data_ptr()
    with cell.dropping():
        for launch in launched(log, cell):
            assert launch.given[13].data_ptr() == cell.from_past.weight_in_use.data_ptr()
            assert (launch.given[13] == 0).any()


@pytest.mark.parametrize("poll", ["near", "post"])
@pytest.mark.parametrize("ways", [1, 2])
def test_neighbours_are_launched_as_clusters_with_room_for_mail(ways: int, poll: str, log: list[Launch]) -> None:
    """Two sorts of arguments share what was compiled. Planted: room that grows with each of them."""
    call = called(ways, Partition(16, 16, poll=poll, split=2), batch=20, name="layernorm-lstm")
    call()
    call._replace(history=torch.empty(*call.history.shape[:4], 40)[..., :32])()
    assert len(call.kernel.compiled) == 2
    assert [launch.grid for launch in log] == [(2, 1, ways)] * 2  # two groups of rows; programs are counted by clusters
    assert all(launch.direct for launch in log)
    mail = call.kernel.mailbox
    assert mail is not None
    (compiled,) = {id(one): one for one in call.kernel.compiled.values()}.values()
    assert compiled.packed_metadata == (4, 2, 60_032 + mail.size)


def test_a_mailbox_has_a_place_for_each_share() -> None:
    """Of seven programs, five rows and totals of two stages, in each half. Planted: rows that overlap."""
    mail = Mailbox(5, 7, (3, 1))
    places = set()
    for half in range(2):
        for stage, totals in enumerate(mail.stages):
            for program in range(7):
                for row in range(5):
                    place = eval(mail.slot(stage, str(half * mail.half), str(program)), {"local": row})
                    assert place % (16 if totals > 1 else 4) == 0  # those of a program are written at once
                    places |= {place + 4 * number for number in range(totals)}
    assert len(places) == 2 * (3 + 1) * 7 * 5
    assert max(places) + 4 <= mail.size
    assert all(mail.stride(totals) % 16 == 0 for totals in mail.stages)  # four are read at once
