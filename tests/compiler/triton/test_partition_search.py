"""Partitions: what fits on a GPU, and what the cost model chooses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from cell_cases import cell_of
from torch import Tensor, nn

from benchmarks.recurrence.cases import tuning
from elman.cells import Cell
from elman.compiler.triton.partition import Partition, SyncMode
from elman.compiler.triton.search import SHARED, candidates, choose_partition, step_time
from elman.recurrence import compiled_triton


@pytest.mark.parametrize(
    ("size", "batch", "itemsize"), [(256, 64, 2), (650, 20, 2), (1150, 64, 2), (512, 1, 4), (8, 3, 4)]
)
def test_candidates_fit_and_cover_all_units(size: int, batch: int, itemsize: int) -> None:
    program = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=size)).step
    for one in candidates(program, batch, itemsize, 132):
        assert one.groups(batch) * one.programs(size) <= 132
        assert one.units * one.programs(size) >= size
        ends = [start + length for start, length in one.k_tiles(size)]
        assert [start for start, _ in one.k_tiles(size)] == [0, *ends[:-1]]
        assert ends[-1] >= size
        assert all(length & (length - 1) == 0 for _, length in one.k_tiles(size))
    assert choose_partition(program, batch, itemsize, 132) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "size"), [(64, 256), (64, 768), (32, 1024), (16, 512), (20, 650), (1, 512)])
def test_tuning_starts_with_the_chosen_partition(batch: int, size: int) -> None:
    compiled = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=size))
    for program in (compiled.step, compiled.adjoint.program):
        found = tuning(program, batch, 2, 132)
        assert found[0] == choose_partition(program, batch, 2, 132)
        assert 3 <= len(found) <= 6
        assert len({(one.sync, one.wgmma) for one in found}) > 1
        times = [step_time(program, one, 2) for one in found]
        assert times == sorted(times)
        assert all(one.shared_bytes(program, 2) <= SHARED for one in found)


def test_the_worked_example_of_the_cost_model() -> None:
    """Figures in the docstrings of partition.py and search.py."""
    program = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=512)).step
    part = choose_partition(program, 64, 2, 132)
    assert part is not None
    assert (part.sync, part.rows, part.units, part.warps) == (SyncMode.SENTINEL, 8, 32, 8)
    assert (part.groups(64), part.programs(512)) == (8, 16)
    assert part.weight_bytes(program, 2) == part.register_weight_bytes(program, 2) == 131_072
    assert round(step_time(program, part, 2), 2) == 1.46


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "size", "forward", "backward"),
    [
        ("gru", {"reset": "before"}, 512, "st_async", "st_async"),
        ("layernorm-lstm", {}, 512, "st_async", "cluster_sentinel"),
        ("peephole", {"form": "full"}, 512, "cluster_barrier", "cluster_barrier"),
        ("lstm", {}, 256, "st_async", "st_async"),
        ("lstm", {}, 512, "sentinel", "sentinel"),
        ("gru", {}, 512, "st_async", "sentinel"),
        ("rnn", {}, 512, "st_async", "st_async"),
    ],
    ids=str,
)
def test_the_exchange_that_was_fastest_on_an_h200_is_chosen(
    name: str, settings: Any, size: int, forward: str, backward: str
) -> None:
    """And st_async for packed 16-bit values only. Catches float32 packets, and with one unit per thread."""
    compiled = compiled_triton.compiled_cell(cell_of(name, settings, hidden_size=size))
    for program, sync in ((compiled.step, forward), (compiled.adjoint.program, backward)):
        assert choose_partition(program, 64, 2, 132).sync == sync
        assert not any(one.sync == SyncMode.ST_ASYNC for one in candidates(program, 64, 4, 132))
        found = [one for one in candidates(program, 64, 2, 132) if one.sync == SyncMode.ST_ASYNC]
        assert all(one.rows * one.padded_units >= 64 * one.warps for one in found)


@pytest.mark.slow
def test_what_does_not_fit_has_no_partition() -> None:
    assert choose_partition(compiled_triton.compiled_cell(cell_of("lstm", hidden_size=4096)).step, 1, 2, 132) is None
    assert Partition(16, 8).k_tiles(200) == [(0, 128), (128, 64), (192, 16)]
    assert Partition(16, 8, split_k=4).k_tiles(200) == [(0, 256)]
    assert Partition(16, 8, split_k=4, sync=SyncMode.SENTINEL).k_tiles(300) == [(0, 128), (128, 128), (256, 128)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [("gru", {"reset": "before"}), ("layernorm-lstm", {})], ids=str)
def test_steps_with_several_exchanges_use_clusters_where_there_are_any(name: str, settings: Any) -> None:
    """Of at most 16 programs. Catches clusters on any GPU, and with 32 programs in one."""
    compiled = compiled_triton.compiled_cell(cell_of(name, settings, hidden_size=512))
    for program in (compiled.step, compiled.adjoint.program):
        clustered = [one for one in candidates(program, 64, 2, 132) if one.clustered]
        assert {one.programs(512) for one in clustered} <= {8, 16}
        assert choose_partition(program, 64, 2, 132) in clustered
        without = choose_partition(program, 64, 2, 132, clusters=False)
        assert without is not None
        assert without.sync == SyncMode.COUNTER


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "processors", "forward", "backward"),
    [(64, 132, 8, 16), (56, 132, 8, 8), (24, 66, 8, 8), (32, 66, 8, 16)],
)
def test_all_clusters_run_at_once(batch: int, processors: int, forward: int, backward: int) -> None:
    """Seven clusters of sixteen run at once, three on half a chip, and twice as many where two programs share a
    processor. Catches as many as there are processors for: the last cluster then ran after all others."""
    compiled = compiled_triton.compiled_cell(cell_of("layernorm-lstm", hidden_size=512))
    for program, rows in ((compiled.step, forward), (compiled.adjoint.program, backward)):
        chosen = choose_partition(program, batch, 2, processors)
        assert chosen is not None
        assert chosen.rows == rows
        one_each = chosen.groups(batch) <= 7 * processors // 132
        assert one_each or (chosen.warps == 4 and 2 * chosen.shared_bytes(program, 2) <= SHARED)
    gru = compiled_triton.compiled_cell(cell_of("gru", {"reset": "before"}, hidden_size=512))
    part = choose_partition(gru.step, 64, 2, 132)
    assert part is not None
    assert (part.rows, part.warps, part.clustered) == (8, 4, True)


def test_weights_are_held_in_registers_as_far_as_they_fit() -> None:
    """All 131 kB of a program, or two thirds of 147 kB. Catches a model that counts no registers."""
    for size, units, share in ((512, 32, 1), (768, 24, 2 / 3)):
        program = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=size)).step
        chosen = choose_partition(program, 64, 2, 132)
        assert chosen is not None
        assert (chosen.units, chosen.warps) == (units, 8)
        in_registers = chosen.register_weight_bytes(program, 2)
        assert in_registers == int(share * chosen.weight_bytes(program, 2))
        without = replace(chosen, register_tiles=0)
        assert without.shared_bytes(program, 2) - chosen.shared_bytes(program, 2) == in_registers


def test_loads_wait_twice_where_weights_need_the_registers() -> None:
    """1150 units backward poll in two waits. Catches all loads in flight at once, which left the counter."""
    backward = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=1150)).program("backward")
    found = choose_partition(backward, 20, 2, 132)
    assert found is not None
    assert (found.sync, len(found.waits(backward, 2))) == (SyncMode.SENTINEL, 2)
    assert found.shared_bytes(backward, 2) <= SHARED < replace(found, register_tiles=0).shared_bytes(backward, 2)


def test_24_units_need_blocks_that_fill_a_tensor_core_tile() -> None:
    """Of sixteen columns; three gates are 2 + 1, and one gate of eight units has eight. Catches any sum."""
    for name, size, fits in (("lstm", 768, True), ("gru", 768, False), ("gated", 768, True)):
        program = compiled_triton.compiled_cell(cell_of(name, hidden_size=size)).step
        found = [one for one in candidates(program, 64, 2, 132) if one.units == 24]
        assert bool(found) == fits
        assert all(one.fragment_loads for one in found)


class WithoutProducts(Cell):
    name = "without products"

    def __init__(self, size: int) -> None:
        super().__init__(Cell.Config(hidden_size=size), 3)
        self.from_input, self.decay = nn.Linear(3, size), nn.Parameter(torch.zeros(size))

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.sigmoid(self.decay) * state + drive
        return new, new


def test_cells_without_products_have_partitions_too() -> None:
    """Seen to fail on the maximum of an empty list."""
    compiled = compiled_triton.compiled_cell(WithoutProducts(512))
    for program in (compiled.step, compiled.adjoint.program):
        found = tuning(program, 16, 2, 132)
        assert found
        assert {one.sync for one in found} == {SyncMode.COUNTER}


def test_less_shared_memory_gives_smaller_slices() -> None:
    """Catches the limit of the largest GPU for all."""
    program = compiled_triton.compiled_cell(cell_of("layernorm-lstm", hidden_size=512)).step
    large, small = (choose_partition(program, 64, 2, 132, shared) for shared in (SHARED, 100 * 1024))
    assert small.shared_bytes(program, 2) <= 100 * 1024 < large.shared_bytes(program, 2)
    assert choose_partition(program, 64, 2, 132, 32 * 1024) is None
