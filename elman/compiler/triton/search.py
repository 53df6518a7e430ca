"""Search for a partition: enumerate, drop what does not fit or cannot run at once, take the least estimated time.

The cost model estimates the time of one step in microseconds on an H200. It is linear, with one set of weights per way
to exchange values, fitted to times of 60 partitions (the cases named "sweep" in
benchmarks/results/*-recurrence-gpu.json, and others like them). With `sentinel`, forward estimates are off by 5 % on
average and 14 % at most. They only rank partitions.

Example: LSTM, H 512, B 64, bf16, forward, `sentinel`, R 8, U 32, 8 warps (the whole layer was measured at 1.80 us, with
the input's product, which is no part of the kernel):
    one exchange                                                          0.95
    values: 8 rows x 512 x 2 bytes = 8.2 kB                 x 34.9 us/MB  0.29
    weights in shared memory: 0 (all 131 kB in registers)   x 4.15 us/MB  0.00
    sums over warps: 8 warps x 8 x 32 x 4 gates x 4 bytes = 33 kB x 6.8   0.22
    registers beyond 210 per thread: 0                      x 0.01 us     0.00      total 1.46
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from elman.compiler.ir import StepIR
from elman.compiler.triton.cluster import LARGE_CLUSTER, PORTABLE_CLUSTER
from elman.compiler.triton.partition import MMA_K, SECTOR, Partition, SyncMode, powers
from elman.compiler.triton.schedule import matmul_inputs, schedule

# of an H200
PROCESSORS = 132  # streaming multiprocessors
SHARED = 226 * 1024  # bytes of shared memory per processor that a kernel gets
LARGE_CLUSTERS, PORTABLE_CLUSTERS = 7, 15  # clusters of 9 to 16, and of up to 8 programs, that run at once, as
# cuOccupancyMaxActiveClusters says: those of 16 lie in one GPC, where some processors are left over

TILE_BYTES = 32 * 1024  # of values in one K tile, if they are not loaded by fragments
WGMMA_COLUMNS = 64  # M of wgmma
FEW_LOADS = 16  # vector loads per wait; beyond, only 8 warps are tried
MAX_REGISTERS = 236  # per thread, estimated; beyond, ptxas spills (255 with addresses and temporaries)
FLOAT32_LOADS = 8  # vector loads of float32 after which a wait may follow: rounded to TF32 they take registers twice
FAST_REGISTERS = 210  # per thread; kernels with more were slower
SINGLE_WEIGHTS = 64 * 1024  # bytes; up to here one program may hold all weights of a cell, without any exchange


@lru_cache(256)
def choose_partition(
    program: StepIR, batch: int, itemsize: int, processors: int, shared: int = SHARED, clusters: bool = True
) -> Partition | None:
    """The partition of least estimated time; None if nothing fits. `clusters`: whether the GPU has them."""
    found = candidates(program, batch, itemsize, processors, shared)
    found = [part for part in found if clusters or not part.clustered]
    return min(found, key=lambda part: step_time(program, part, itemsize), default=None)


def candidates(program: StepIR, batch: int, itemsize: int, processors: int, shared: int = SHARED) -> list[Partition]:
    """All partitions that fit and whose programs all run at the same time, as spinning requires."""
    size = program.size
    found: list[Partition] = []
    all_units = max(MMA_K, 1 << (size - 1).bit_length())
    for rows in (8, 16, 32, 64, 128):
        if rows > MMA_K and rows >= 2 * batch:
            continue
        for units in (8, 16, 24, 32, 48, 64, all_units):
            if units >= size and units != all_units:
                continue
            groups = math.ceil(batch / rows)
            if groups * math.ceil(size / units) <= processors:
                variants = _variants(program, Partition(rows, units), itemsize, shared)
                fitting = [part for part in variants if _fits(program, part, itemsize, shared)]
                limits = (_concurrent_groups(program, part, itemsize, processors, shared) for part in fitting)
                found += [part for part, limit in zip(fitting, limits, strict=True) if groups <= limit]
    return found


def _concurrent_groups(program: StepIR, part: Partition, itemsize: int, processors: int, shared: int) -> float:
    """How many groups run at once, if they are clusters."""
    if not part.clustered:
        return math.inf
    portable = part.programs(program.size) <= PORTABLE_CLUSTER
    clusters = (PORTABLE_CLUSTERS if portable else LARGE_CLUSTERS) * processors // PROCESSORS
    two_per_processor = part.warps == 4 and 2 * part.shared_bytes(program, itemsize) <= shared
    return 2 * clusters if two_per_processor else clusters


def _variants(program: StepIR, part: Partition, itemsize: int, shared: int) -> list[Partition]:
    """Ways to exchange and to multiply for given rows and units."""
    loads = sum(node.op == "load" for node in program.nodes)
    warps = 4 if part.weight_bytes(program, itemsize) <= 64 * 1024 and loads <= 8 else 8
    tile_k = TILE_BYTES // (part.rows * itemsize)
    if part.programs(program.size) == 1:
        return [replace(part, warps=warps, tile_k=max(MMA_K, tile_k))]
    widths = part.dot_widths(program)
    split_k = warps if widths else 1
    found = [replace(part, warps=warps, split_k=split_k, tile_k=max(MMA_K * split_k, tile_k))]
    if not widths:  # no products
        return [] if part.units < part.padded_units else found
    if part.units < part.padded_units:  # one dot per power of two in U: each must fill a tensor core tile
        if any(block * width % MMA_K for block in powers(part.units) for width in widths):
            return []
        found = []
    for sync in _fragment_syncs(program, part):
        few, many = (replace(part, warps=n, split_k=n, sync=sync) for n in (4, 8))
        easy = few.waits(program, itemsize)[0] <= FEW_LOADS and few.registers(program, itemsize) <= MAX_REGISTERS
        found += [_with_register_tiles(program, each, itemsize, shared) for each in [few] * easy + [many]]
    if itemsize == 2 and part.units == part.padded_units and part.units * min(widths) >= WGMMA_COLUMNS:
        found.append(replace(part, tile_k=256, wgmma=True))
    return found


def _fragment_syncs(program: StepIR, part: Partition) -> list[SyncMode]:
    """Ways to exchange that allow fragment loads."""
    one_exchange = schedule(program).exchanges == 1
    if part.programs(program.size) not in (*range(PORTABLE_CLUSTER + 1), LARGE_CLUSTER):
        return [SyncMode.SENTINEL] * one_exchange
    totals = any(node.op == "sum" for node in program.nodes)
    # with several exchanges per step, early polls of global memory slow the others' stores down
    polling = SyncMode.SENTINEL if one_exchange else SyncMode.CLUSTER_SENTINEL if totals else SyncMode.CLUSTER_BARRIER
    return [polling, SyncMode.ST_ASYNC]


def _with_register_tiles(program: StepIR, part: Partition, itemsize: int, shared: int) -> Partition:
    """The best K tile length and number of weight tiles in registers."""
    if part.units * min(part.dot_widths(program)) % MMA_K:
        return part
    found = [part]
    tile_k = part.tile_k
    while tile_k >= 2 * MMA_K * part.split_k:
        tried = [replace(part, tile_k=tile_k)]
        # in two waits; with several exchanges other values would take the registers that this frees
        if part.sync == SyncMode.SENTINEL:
            half = math.ceil(sum(tried[0].waits(program, itemsize)) / 2)
            tried.append(replace(tried[0], loads_in_flight=half))
        for count in range(1, len(tried[0].k_tiles(program.size)) + 1):
            found += [replace(each, register_tiles=count) for each in tried]
        tile_k //= 2
    fitting = [each for each in found if _fits(program, each, itemsize, shared)]
    several = any(node.op == "sum" or (node.op == "matmul" and len(node.args) > 1) for node in program.nodes)
    sign = 1 if several else -1  # of equal estimates: short tiles for several inputs or beside totals, else long ones
    return min(fitting, key=lambda each: (step_time(program, each, itemsize), sign * each.tile_k), default=part)


def _fits(program: StepIR, part: Partition, itemsize: int, shared: int) -> bool:
    """Limits of shared memory and registers, and configurations measured to spill or to be slow."""
    single = part.programs(program.size) == 1
    if part.rows < MMA_K and (single or not part.fragment_loads or part.rows * part.units < 32 * part.warps):
        return False  # eight rows are the N side of mma, which takes fragment loads; each thread needs a unit
    too_much = single and part.weight_bytes(program, itemsize) > SINGLE_WEIGHTS
    if part.shared_bytes(program, itemsize) > shared or too_much:
        return False
    if not part.fragment_loads:
        return True
    if part.sync == SyncMode.ST_ASYNC and not part.packs_pairs(itemsize):
        return False  # with unpacked inputs it was slower; float32 was never timed
    waits, exchanges = part.waits(program, itemsize), schedule(program).exchanges
    if itemsize > 2 and len(waits) > exchanges and waits[0] > FLOAT32_LOADS:
        return False
    return part.registers(program, itemsize) <= MAX_REGISTERS and len(waits) <= 2 * exchanges


class StepCost(NamedTuple):
    """Weights of the linear model; MB is 1e6 bytes."""

    exchange: float  # us per exchange: latency of store, synchronization and load
    values: float  # us per MB of values that a program loads from others
    weights: float  # us per MB of weights that it reads from shared memory in each step
    warp_sums: float  # us per MB of partial products that its warps add up
    multiply: float  # us per million multiply-adds of 16-bit values; twice that in float32
    narrow: float  # us per value after the first, where a row of U units fills no sector
    total: float  # us per program and total
    extra_wait: float  # us per wait for vector loads beyond one per exchange
    register: float  # us per register of a thread beyond FAST_REGISTERS
    send: float = 0.0  # us per value and receiving program


_COUNTER = StepCost(1.44, 24.4, 8.9, 4.9, 0.0, 0.87, 0.003, 0.0, 0.0)
_SENTINEL = StepCost(0.95, 34.9, 4.15, 6.8, 0.0, 0.77, 0.0, 0.15, 0.01)
COSTS = {
    SyncMode.COUNTER: _COUNTER,
    SyncMode.SENTINEL: _SENTINEL,
    SyncMode.CLUSTER_BARRIER: _SENTINEL._replace(exchange=0.8, narrow=0.0, total=0.02),
    SyncMode.CLUSTER_SENTINEL: _SENTINEL._replace(exchange=0.65, narrow=0.0, total=0.004),
    # 52 us/MB: about 14 bytes per cycle into each processor, and two programs may share one
    SyncMode.ST_ASYNC: StepCost(0.4, 52.0, 8.0, 11.0, 0.0, 0.0, 0.004, 0.0, 0.01, send=0.004),
}
WGMMA = StepCost(1.45, 26.6, 6.3, 3.1, 0.32, 0.0, 0.005, 0.0, 0.0)  # with SyncMode.COUNTER
SINGLE = StepCost(0.3, 0.0, 4.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0)  # one program per group; a guess, never fitted


def step_time(program: StepIR, part: Partition, itemsize: int) -> float:
    """Microseconds. `itemsize`: bytes of a matmul operand."""
    size, exchanges = program.size, schedule(program).exchanges
    single = part.programs(size) == 1
    cost = SINGLE if single else WGMMA if part.wgmma else COSTS[part.sync]
    products = sum(node.op == "matmul" for node in program.nodes)
    totals = sum(node.op == "sum" for node in program.nodes)
    values = len(matmul_inputs(program))
    inner = sum(length for _, length in part.k_tiles(size))
    weights = part.weight_bytes(program, itemsize)
    in_registers = part.register_weight_bytes(program, itemsize)
    slow_registers = max(0, part.registers(program, itemsize) - FAST_REGISTERS) if cost.register else 0
    return (
        (1 if single else exchanges) * cost.exchange
        + values * part.rows * inner * itemsize * cost.values / 1e6
        + (weights - in_registers) * cost.weights / 1e6
        + part.split_k * part.rows * part.padded_units * products * 4 * cost.warp_sums / 1e6
        + weights * part.rows / 2 * cost.multiply / 1e6  # bytes / 2: multiply-adds of 16-bit values
        + values * part.programs(size) * cost.send
        + max(0, values - 1) * (part.units * itemsize < SECTOR) * cost.narrow
        + totals * part.programs(size) * cost.total
        + max(0, len(part.waits(program, itemsize)) - exchanges) * cost.extra_wait
        + slow_registers * cost.register
    )
