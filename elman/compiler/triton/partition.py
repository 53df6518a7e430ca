"""How a recurrence is divided among thread blocks, and what one of them needs: shared memory, registers, vector loads.

              units of program 0 | 1 | ... | P-1          rows    R rows of a group, one sequence each
    group 0   +------------------+---+-----+----+         units   U hidden units of a program
    R rows    |  all T steps     |   |     |    |         P       ceil(H / U) programs exchange values at each step
              +------------------+---+-----+----+
    group 1   |  independent of group 0         |         groups  ceil(B / R)

A program keeps the weights of its own units on the chip for all steps, in shared memory and registers. Each product is
a matmul (R x K) @ (K x U) per part, K = H rounded up; `split_k` warps take a part of K each and add their results.
Example: an LSTM, H = 512, B = 64, bf16, forward: R 8, U 32, so 8 groups of 16 programs, on 128 of 132 processors;
each holds 4 gates x 32 units x 512 x 2 bytes = 131 kB of weights, in registers.
"""

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from elman.compiler.ir import StepIR
from elman.compiler.triton.cluster import ExchangeBuffer
from elman.compiler.triton.cluster_exchange import AsyncExchange
from elman.compiler.triton.schedule import matmul_inputs, schedule
from elman.compiler.triton.spin_loads import LOADS_IN_FLIGHT


class SyncMode(StrEnum):
    """How values of units, and partial sums of totals, reach the other programs of a group, and what they wait for."""

    COUNTER = "counter"  # both through global memory, then a barrier on an atomic counter there; any GPU
    SENTINEL = "sentinel"  # values through global memory, polled for a sentinel; one exchange per step only
    CLUSTER_BARRIER = "cluster_barrier"  # values through global memory, sums through DSMEM, then a cluster barrier
    CLUSTER_SENTINEL = "cluster_sentinel"  # values through global memory, sums through DSMEM, both polled
    ST_ASYNC = "st_async"  # values by st.async into DSMEM, counted by an mbarrier; sums through DSMEM, polled


MMA_K = 16  # the least inner dimension of a tensor core product of 16-bit values; rows are padded to multiples of it
SECTOR = 32  # bytes; the least that a store to global memory moves
READ_WINDOW = 64 * 1024  # bytes of values that a program loads before it multiplies them, if not by fragments
PARTIAL_TILE_REGISTERS = 24  # per thread: masks where H is not a multiple of U; twice as many with st.async
TOTAL_REGISTERS = 36  # per thread: sums over units, if there are any


def padded(size: int) -> int:
    """Elements from one row of H units to the next, such that rows start at multiples of 32 bytes."""
    return -(-size // MMA_K) * MMA_K


def powers(count: int) -> list[int]:
    """A number as a sum of powers of two, 3 = 2 + 1: tensor shapes are powers of two."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


@dataclass(frozen=True)
class Partition:
    rows: int  # R: rows of a group, all computed by each of its programs
    units: int  # U: hidden units of a program; a power of two, or with fragment loads a sum of two (24 = 16 + 8)
    warps: int = 4
    split_k: int = 1  # warps that share the inner dimension of products; 1 or `warps`
    tile_k: int = 1024  # the longest tile of the inner dimension that is loaded at once
    sync: SyncMode = SyncMode.COUNTER
    wgmma: bool = False  # units on the M side of products (64 columns at least): wgmma reads weights in shared memory
    register_tiles: int = 0  # K tiles of weights held in registers, with fragment loads; others are in shared memory
    loads_in_flight: int = LOADS_IN_FLIGHT  # vector loads of a thread before the first is used; 4 registers each

    @property
    def padded_units(self) -> int:
        """U rounded up to a power of two: the width of tensors."""
        return 1 << (self.units - 1).bit_length()

    @property
    def clustered(self) -> bool:
        """Whether the programs of a group are a thread block cluster."""
        return self.sync in (SyncMode.CLUSTER_BARRIER, SyncMode.CLUSTER_SENTINEL, SyncMode.ST_ASYNC)

    @property
    def waits_on_chip(self) -> bool:
        """Whether waiting causes no traffic in global memory, so that inputs can be prefetched during it."""
        return self.sync in (SyncMode.CLUSTER_BARRIER, SyncMode.ST_ASYNC)

    @property
    def fragment_loads(self) -> bool:
        """Whether each lane loads its own fragment of mma operands (spin_loads)."""
        return self.sync == SyncMode.SENTINEL or self.clustered

    def packs_pairs(self, itemsize: int) -> bool:
        """Whether two 16-bit inputs are loaded as one int32. As single values the compiler would convert them right
        after the load, and so wait for it."""
        return self.waits_on_chip and itemsize == 2 and self.rows * self.padded_units >= 2 * 32 * self.warps

    def groups(self, batch: int) -> int:
        return math.ceil(batch / self.rows)

    def programs(self, size: int) -> int:
        """P: programs of a group."""
        return math.ceil(size / self.units)

    def k_tiles(self, size: int) -> list[tuple[int, int]]:
        """Start and length of each tile of the inner dimension; lengths are powers of two."""
        if self.programs(size) == 1:
            return [(0, self.units)]
        step = (2 * MMA_K if self.fragment_loads else MMA_K) * self.split_k
        left, start, found = math.ceil(size / step) * step, 0, []
        equal = left & -left  # with fragment loads all tiles have one shape
        while left:
            length = min(self.tile_k, equal if self.fragment_loads else 1 << (left.bit_length() - 1))
            found.append((start, length))
            start, left = start + length, left - length
        return found

    def weight_bytes(self, program: StepIR, itemsize: int) -> int:
        """Of one thread block, on the chip."""
        blocks = sum(len(node.args) for node in program.nodes if node.op == "matmul")
        return blocks * self.units * sum(length for _, length in self.k_tiles(program.size)) * itemsize

    def register_weight_bytes(self, program: StepIR, itemsize: int) -> int:
        """The part of them that is held in registers."""
        tiles = self.k_tiles(program.size)
        return self.weight_bytes(program, itemsize) * self.register_tiles // len(tiles) if self.register_tiles else 0

    def dot_widths(self, program: StepIR) -> list[int]:
        """How many of a step's products each tl.dot computes: a power of two of those with equal inputs."""
        groups = Counter(node.args for node in program.nodes if node.op == "matmul")
        return [count for total in groups.values() for count in powers(total)]

    def waits(self, program: StepIR, itemsize: int) -> list[int]:
        """For each wait of a thread for product inputs: how many vector loads it then has in flight; largest first."""
        found = []
        tiles = self.k_tiles(program.size)
        per_tile = max(1, self.rows * tiles[0][1] * itemsize // 16 // (32 * self.warps))
        together = max(1, self.loads_in_flight // per_tile)
        for args in {node.args for node in program.nodes if node.op == "matmul"}:
            left = len(args) * len(tiles)
            while left > 0:
                found.append(per_tile * min(together, left))
                left -= together
        return sorted(found, reverse=True)

    def registers(self, program: StepIR, itemsize: int) -> int:
        """Estimate per thread: vector loads in flight, accumulators, weights, and what belongs to its own units."""
        threads, elements = 32 * self.warps, self.rows * self.padded_units // (32 * self.warps)
        accumulators = self.rows * self.units * max(self.dot_widths(program)) // 32
        count = Counter(node.op for node in program.nodes)
        inputs = 1 if self.packs_pairs(itemsize) else 2  # this step's and the next one's; pairs stay packed until used
        own = elements * (inputs * count["load"] + count["vector"] + len(program.next_state))
        masks = PARTIAL_TILE_REGISTERS if program.size % self.units else 0
        masks *= 2 if self.sync == SyncMode.ST_ASYNC else 1
        totals = TOTAL_REGISTERS if count["sum"] else 0
        weights = self.register_weight_bytes(program, itemsize) // (4 * threads)
        return 4 * self.waits(program, itemsize)[0] + accumulators + weights + own + masks + totals

    def shared_bytes(self, program: StepIR, itemsize: int) -> int:
        """Weights, the exchange buffer, and room that values from other programs and sums over warps use in turn."""
        inputs = [len(node.args) for node in program.nodes if node.op == "matmul"]
        width = max(self.dot_widths(program), default=0)
        warp_sums = self.split_k * self.rows * self.padded_units * width * 4
        tiles = self.k_tiles(program.size)
        longest = self.rows * max(length for _, length in tiles) * itemsize
        together = min(max(inputs, default=0) * len(tiles), max(1, READ_WINDOW // longest))
        values = 0 if self.fragment_loads else together * longest
        exchange = self.exchange_buffer(program, itemsize).total_bytes if self.clustered else 0
        weights = self.weight_bytes(program, itemsize) - self.register_weight_bytes(program, itemsize)
        return weights + max(values, warp_sums) + exchange

    def exchange_buffer(self, program: StepIR, itemsize: int) -> ExchangeBuffer:
        """What other programs of the cluster write to in this program's shared memory."""
        totals = tuple(len(stage.reductions) for stage in schedule(program).stages if stage.reductions)
        programs, values = self.programs(program.size), len(matmul_inputs(program))
        exchange = AsyncExchange(self.rows, self.units, programs, itemsize, 32 * self.warps, values)
        polled = self.sync in (SyncMode.CLUSTER_SENTINEL, SyncMode.ST_ASYNC)
        return ExchangeBuffer(self.rows, programs, totals, polled, exchange if self.sync == SyncMode.ST_ASYNC else None)
