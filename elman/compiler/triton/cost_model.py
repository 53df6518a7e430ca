"""Estimated time of one step of a partition, in microseconds on an H200: a linear model, one set of weights per way to
exchange values.

Fitted to times of 60 partitions (the cases named "sweep" in benchmarks/results/*-recurrence-gpu.json, and others like
them). With `sentinel`, forward estimates are off by 5 % on average and 14 % at most. They only rank partitions.

Example: LSTM, H 512, B 64, bf16, forward, `sentinel`, R 8, U 32, 8 warps (the whole layer was measured at 1.80 us, with
the input's product, which is no part of the kernel):
    one exchange                                                          0.95
    values: 8 rows x 512 x 2 bytes = 8.2 kB                 x 34.9 us/MB  0.29
    weights in shared memory: 0 (all 131 kB in registers)   x 4.15 us/MB  0.00
    sums over warps: 8 warps x 8 x 32 x 4 gates x 4 bytes = 33 kB x 6.8   0.22
    registers beyond 210 per thread: 0                      x 0.01 us     0.00      total 1.46
"""

from typing import NamedTuple

from elman.compiler.ir import StepIR
from elman.compiler.triton.partition import Partition, SyncMode
from elman.compiler.triton.schedule import matmul_inputs, schedule

SECTOR = 32  # bytes; the least that a store to global memory moves
FAST_REGISTERS = 210  # per thread; kernels with more were slower


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
