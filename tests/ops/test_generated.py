"""The generated form of the recurrence without a GPU: kernels in Triton's interpreter, schedules and divisions."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_cases import CASES, cell_of
from form_comparison import compare
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.ir import mask_finished_rows
from elman.compiler.triton.partition import SHARED, Partition, candidates, cost, partition, tuning
from elman.compiler.triton.schedule import schedule
from elman.ops import kernel_timeout
from elman.recurrence import compiled_triton, explain

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not many", "many"])
def test_kernels_equal_the_reference_in_the_interpreter(which: str, tmp_path: Path) -> None:
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    cached = {"XDG_CACHE_HOME": str(tmp_path), "TRITON_INTERPRET": "1", "PYTHONPATH": f"{HERE.parents[1]}"}
    laws = [str(HERE / "kernel_laws.py"), "-k", which, "-x", "-q", "-p", "no:cacheprovider", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", *laws]
    found = subprocess.run(command, env={**os.environ, **cached}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
    assert "passed" in found.stdout
    assert "skipped" not in found.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_kernels_equal_the_reference(case) -> None:
    with torch.device("cuda"):
        compare(case, 7, 9, 100, tolerance=2e-4)
        compare(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)


ROUNDS = {"lstm": 1, "gru": 1, "rnn": 1, "coupled": 1, "gated": 1, "residual": 1, "peephole": 1, "layernorm-lstm": 3}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_step_takes_as_few_meetings_as_it_can(name: str) -> None:
    made = compiled_triton.plan(cell_of(name))
    assert schedule(made.step).rounds == ROUNDS[name]
    assert schedule(made.adjoint.program).rounds == ROUNDS[name]
    assert schedule(made.step, alone=True).rounds == 0


def test_products_inside_a_step_take_a_meeting_more() -> None:
    for case in (("gru", {"reset": "before"}), ("peephole", {"form": "full"})):
        made = compiled_triton.plan(cell_of(*case))
        assert schedule(made.step).rounds == schedule(made.adjoint.program).rounds == 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_everything_is_computed_before_it_is_used_and_stored_once(case) -> None:
    made = compiled_triton.plan(cell_of(*case))
    for program in (made.step, made.adjoint.program, mask_finished_rows(made.step)):
        plan = schedule(program, program.outputs)
        done: set[int] = set()
        stored: list[int] = []
        for stage in plan.stages:
            for index in (*stage.first, *stage.rest):
                assert set(program.nodes[index].args) <= done
                done.add(index)
            stored += [*stage.sent, *stage.kept]
        assert sorted(stored) == sorted(plan.stored)
        assert set(program.results()) <= done


@pytest.mark.parametrize(
    ("size", "batch", "itemsize"), [(256, 64, 2), (650, 20, 2), (1150, 64, 2), (512, 1, 4), (8, 3, 4)]
)
def test_a_division_fits_and_covers_all_units(size: int, batch: int, itemsize: int) -> None:
    program = compiled_triton.plan(cell_of("lstm", hidden_size=size)).step
    for one in candidates(program, batch, itemsize, 132):
        assert one.groups(batch) * one.programs(size) <= 132
        assert one.units * one.programs(size) >= size
        ends = [start + length for start, length in one.pieces(size)]
        assert [start for start, _ in one.pieces(size)] == [0, *ends[:-1]]
        assert ends[-1] >= size
        assert all(length & (length - 1) == 0 for _, length in one.pieces(size))
    assert partition(program, batch, itemsize, 132) is not None


@pytest.mark.parametrize(("batch", "size"), [(64, 256), (64, 768), (32, 1024), (16, 512), (20, 650), (1, 512)])
def test_divisions_to_try_begin_with_the_chosen_one(batch: int, size: int) -> None:
    made = compiled_triton.plan(cell_of("lstm", hidden_size=size))
    for program in (made.step, made.adjoint.program):
        found = tuning(program, batch, 2, 132)
        assert found[0] == partition(program, batch, 2, 132)
        assert 3 <= len(found) <= 6
        assert len({(one.poll, one.turned) for one in found}) > 1
        costs = [cost(program, one, 2) for one in found]
        assert costs == sorted(costs)
        assert all(one.shared(program, 2) <= SHARED for one in found)


@pytest.mark.parametrize(
    ("name", "settings", "size", "forward", "backward"),
    [
        ("gru", {"reset": "before"}, 512, "post", "post"),
        ("layernorm-lstm", {}, 512, "post", "mail"),
        ("lstm", {}, 256, "post", "post"),
        ("lstm", {}, 512, "data", "data"),
        ("gru", {}, 512, "post", "data"),
        ("rnn", {}, 512, "post", "post"),
    ],
    ids=str,
)
def test_the_post_is_taken_where_it_was_faster(
    name: str, settings: Any, size: int, forward: str, backward: str
) -> None:
    """Times on an H200 say so; numbers of 16 bits, in pairs. Planted: letters of float32; threads of one unit."""
    made = compiled_triton.plan(cell_of(name, settings, hidden_size=size))
    for program, poll in ((made.step, forward), (made.adjoint.program, backward)):
        assert partition(program, 64, 2, 132).poll == poll
        assert not any(one.poll == "post" for one in candidates(program, 64, 4, 132))
        posted = [one for one in candidates(program, 64, 2, 132) if one.poll == "post"]
        assert all(one.rows * one.tile >= 64 * one.warps for one in posted)


def test_what_does_not_fit_has_no_division() -> None:
    assert partition(compiled_triton.plan(cell_of("lstm", hidden_size=4096)).step, 1, 2, 132) is None
    assert Partition(16, 8).pieces(200) == [(0, 128), (128, 64), (192, 16)]
    assert Partition(16, 8, split=4).pieces(200) == [(0, 256)]
    assert Partition(16, 8, split=4, poll="data").pieces(300) == [(0, 128), (128, 128), (256, 128)]


@pytest.mark.parametrize(("name", "settings"), [("gru", {"reset": "before"}), ("layernorm-lstm", {})], ids=str)
def test_who_meets_several_times_a_step_has_neighbours_where_there_are_clusters(name: str, settings: Any) -> None:
    """At most 16 of them. Planted: clusters on any GPU; 32 programs in one."""
    made = compiled_triton.plan(cell_of(name, settings, hidden_size=512))
    for program in (made.step, made.adjoint.program):
        near = [one for one in candidates(program, 64, 2, 132) if one.clustered]
        assert {one.programs(512) for one in near} <= {8, 16}
        assert partition(program, 64, 2, 132) in near
        apart = partition(program, 64, 2, 132, clusters=False)
        assert apart is not None
        assert apart.poll == "load"
    assert partition(compiled_triton.plan(cell_of("lstm", hidden_size=512)).step, 64, 2, 132).poll == "data"


@pytest.mark.parametrize(
    ("batch", "processors", "forward", "backward"),
    [(64, 132, 8, 16), (56, 132, 8, 8), (24, 66, 8, 8), (32, 66, 8, 16)],
)
def test_no_cluster_waits_for_another_to_end(batch: int, processors: int, forward: int, backward: int) -> None:
    """Seven of sixteen programs run at once, three on half a chip, and twice as many where two programs share a
    processor. Planted: as many as there are processors for, of which the last takes as long as all others again."""
    made = compiled_triton.plan(cell_of("layernorm-lstm", hidden_size=512))
    for program, rows in ((made.step, forward), (made.adjoint.program, backward)):
        chosen = partition(program, batch, 2, processors)
        assert chosen is not None
        assert chosen.rows == rows
        alone = chosen.groups(batch) <= 7 * processors // 132
        assert alone or (chosen.warps == 4 and 2 * chosen.shared(program, 2) <= SHARED)
    before = partition(compiled_triton.plan(cell_of("gru", {"reset": "before"}, hidden_size=512)).step, 64, 2, 132)
    assert before is not None
    assert (before.rows, before.warps, before.clustered) == (8, 4, True)


def test_weights_lie_in_registers_as_far_as_there_is_room() -> None:
    """All of a program's 131 kB, two thirds of 147, beyond which a thread is crowded. Planted: registers that nobody
    counts."""
    for size, units, share in ((512, 32, 1), (768, 24, 2 / 3)):
        program = compiled_triton.plan(cell_of("lstm", hidden_size=size)).step
        chosen = partition(program, 64, 2, 132)
        assert chosen is not None
        assert (chosen.units, chosen.warps) == (units, 8)
        held = chosen.resident(program, 2)
        assert chosen.gripping(program, 2) == int(share * held)
        assert replace(chosen, gripped=0).shared(program, 2) - chosen.shared(program, 2) == chosen.gripping(program, 2)


def test_looks_are_fewer_where_weights_need_the_registers() -> None:
    """1150 units walk back without a counter, in two looks. Planted: all is looked at at once, so that nothing but a
    counter is left."""
    backward = compiled_triton.plan(cell_of("lstm", hidden_size=1150)).program("backward")
    found = partition(backward, 20, 2, 132)
    assert found is not None
    assert (found.poll, len(found.looks(backward, 2))) == ("data", 2)
    assert found.shared(backward, 2) <= SHARED < replace(found, gripped=0).shared(backward, 2)


def test_units_are_a_sum_only_where_each_part_fills_a_tile() -> None:
    """Of sixteen columns; three gates are made as two and one, of which eight units have eight. Planted: any sum."""
    for name, size, fits in (("lstm", 768, True), ("gru", 768, False), ("gated", 768, True)):
        program = compiled_triton.plan(cell_of(name, hidden_size=size)).step
        found = [one for one in candidates(program, 64, 2, 132) if one.units == 24]
        assert bool(found) == fits
        assert all(one.laned for one in found)


def test_the_alarm_is_read_here_whatever_device_is_the_default() -> None:
    """Planted: a copy made where tensors go by default, which cannot be pinned on a GPU."""
    try:
        with torch.device("meta"):
            assert kernel_timeout.of(torch.device("cpu"))[1].device.type == "cpu"
    finally:
        kernel_timeout.ALARMS.clear()


class Fading(Cell):
    name = "fading"

    def __init__(self, size: int) -> None:
        super().__init__(Cell.Config(hidden_size=size), 3)
        self.from_input, self.decay = nn.Linear(3, size), nn.Parameter(torch.zeros(size))

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.sigmoid(self.decay) * state + drive
        return new, new


def test_units_that_hear_nobody_have_a_division_too() -> None:
    """Planted: the largest of no products was asked for."""
    made = compiled_triton.plan(Fading(512))
    for program in (made.step, made.adjoint.program):
        found = tuning(program, 16, 2, 132)
        assert found
        assert {one.poll for one in found} == {"load"}


class Counting(Cell):
    name = "counting"

    def __init__(self) -> None:
        super().__init__(Cell.Config(hidden_size=4), 3)
        self.from_input, self.from_past = nn.Linear(3, 4), PastProduct(4, 1)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = (drive + self.from_past(state)).cumsum(-1)
        return new, new


def test_the_reason_why_a_cell_has_no_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem = compiled_triton.obstacle(Counting(), torch.zeros(2, 3, 3), None)
    assert problem == "counting cannot be compiled: its step uses cumsum, which the compiler does not support"


def test_on_a_cpu_nobody_speaks_of_it() -> None:
    assert explain(cell_of("lstm"), torch.zeros(2, 8, 3)) == "vendor: oneDNN LSTM"
    assert "CUDA" in (compiled_triton.obstacle(cell_of("lstm"), torch.zeros(2, 8, 3), None) or "")


def test_a_chip_with_less_shared_memory_gets_smaller_slices() -> None:
    """Planted: the limit of the largest chip for all."""
    program = compiled_triton.plan(cell_of("layernorm-lstm", hidden_size=512)).step
    large, small = (partition(program, 64, 2, 132, shared) for shared in (SHARED, 100 * 1024))
    assert small.shared(program, 2) <= 100 * 1024 < large.shared(program, 2)
    assert partition(program, 64, 2, 132, 32 * 1024) is None


def test_the_vendor_is_left_only_where_ours_was_measured_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: any GPU for one that was tried; short sequences of cells that no vendor has."""

    def told(name: str, shape: tuple[int, int, int] = (64, 512, 256), kind: torch.dtype = torch.bfloat16) -> str | None:
        there = {"device": torch.device("cuda", 0), "shape": shape, "__len__": lambda self: shape[0]}
        return compiled_triton.drawback(cell_of(name, hidden_size=shape[2]).to(kind), type("There", (), there)(), None)

    monkeypatch.setattr(compiled_triton, "_capability", lambda device: 9)
    assert told("lstm") is None
    assert told("lstm", kind=torch.float16) is None
    assert told("lstm", (16, 512, 256), torch.float16) is None
    assert "32 steps" in told("gru", (64, 31, 256))
    assert told("peephole", (64, 3, 64), torch.float32) is None
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert told("lstm", kind=torch.float32) is None
    assert told("gru", (64, 512, 128), torch.float32) is None
    assert "64 units" in told("gru", (64, 512, 64), torch.float32)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    assert "all digits" in told("lstm", kind=torch.float32)
    assert told("peephole", kind=torch.float32) is None
    monkeypatch.setattr(compiled_triton, "_capability", lambda device: 8)
    assert "Hopper" in told("peephole")
