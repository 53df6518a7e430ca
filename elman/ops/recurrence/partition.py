"""How a recurrence is divided among the processors of a GPU: groups of rows, and slices of units within a group.

Groups never wait for each other. Within a group every program holds the weights of its own units all the time.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

from elman.ops.recurrence.units import Program

LEAST = 16  # the inner dimension of the smallest matrix product that tensor cores take
BUDGET = 144 * 1024  # bytes of weights that one program can hold beside what it computes with
SHARED = 226 * 1024  # bytes of shared memory of a processor
WINDOW = 64 * 1024  # bytes of what others sent that are read before they are multiplied
PIECE = 32 * 1024  # bytes of what others sent that make one piece
ALONE = 64 * 1024  # up to here a single program holds all weights of a cell and nobody has to be waited for


def padded(size: int) -> int:
    """Numbers from one row of units to the next, so that all rows begin where many can be read at once."""
    return -(-size // LEAST) * LEAST


@dataclass(frozen=True)
class Partition:
    rows: int
    """Rows of a group: those that one program computes."""
    units: int
    """Units of a program; a power of two."""
    warps: int = 4
    split: int = 1
    """Among how many warps the inner dimension of products is divided."""
    chunk: int = 1024
    """The longest piece of the inner dimension that is read at once."""
    poll: str = "load"
    """How a program waits: by reading a counter ("load"), by adding nothing to it ("atomic"), or by looking at the very
    numbers that it needs ("data"), for which each warp has its share of the inner dimension."""

    turned: bool = False
    """Units on the long side of products, 64 columns at least, where tensor cores take weights from shared memory
    themselves: nothing is loaded again at each step, and no shares of warps are added."""

    def groups(self, batch: int) -> int:
        return math.ceil(batch / self.rows)

    def programs(self, size: int) -> int:
        return math.ceil(size / self.units)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Where each piece of the inner dimension starts and how long it is: powers of two that cover the units."""
        if self.programs(size) == 1:
            return [(0, self.units)]
        step = (2 * LEAST if self.poll == "data" else LEAST) * self.split
        left, start, found = math.ceil(size / step) * step, 0, []
        equal = left & -left  # looked at, all pieces have one shape
        while left:
            length = min(self.chunk, equal if self.poll == "data" else 1 << (left.bit_length() - 1))
            found.append((start, length))
            start, left = start + length, left - length
        return found

    def resident(self, program: Program, itemsize: int) -> int:
        """Bytes of weights that one program holds."""
        blocks = sum(len(node.args) for node in program.nodes if node.op == "product")
        return blocks * self.units * sum(length for _, length in self.pieces(program.size)) * itemsize

    def shared(self, program: Program, itemsize: int) -> int:
        """Bytes of shared memory: weights, and beside them what others sent or, later, the shares of the warps."""
        groups = Counter(node.args for node in program.nodes if node.op == "product")
        widest = max((1 << (count.bit_length() - 1) for count in groups.values()), default=0)
        among_warps = self.split * self.rows * self.units * widest * 4 if self.split > 1 else 0
        return self.resident(program, itemsize) + max(WINDOW, among_warps)


def partition(program: Program, batch: int, itemsize: int, processors: int) -> Partition | None:
    """The division that should be fastest, by a rough count of bytes and operations; None if nothing fits."""
    found = candidates(program, batch, itemsize, processors)
    return min(found, key=lambda one: cost(program, one, itemsize), default=None)


def candidates(program: Program, batch: int, itemsize: int, processors: int, budget: int = BUDGET) -> list[Partition]:
    """All divisions whose programs run at the same time and hold their weights."""
    size = program.size
    found: list[Partition] = []
    whole = max(LEAST, 1 << (size - 1).bit_length())
    for rows in (16, 32, 64, 128):
        if rows > 16 and rows >= 2 * batch:
            continue
        for units in (8, 16, 32, 64, whole):
            if units >= size and units != whole:
                continue
            found += _fitting(program, batch, itemsize, processors, Partition(rows, units), budget)
    return found


def _fitting(
    program: Program, batch: int, itemsize: int, processors: int, one: Partition, budget: int
) -> list[Partition]:
    """The division with as many warps as it needs and the inner dimension divided among them, if that has room."""
    alone = one.programs(program.size) == 1
    loads = sum(node.op == "load" for node in program.nodes)
    warps = 4 if one.resident(program, itemsize) <= 64 * 1024 and loads <= 8 else 8
    if one.groups(batch) * one.programs(program.size) > processors:
        return []
    for split in (1,) if alone else (warps, 1):
        chunk = max(LEAST * split, PIECE // (one.rows * itemsize))
        full = replace(one, warps=warps, split=split, chunk=chunk)
        held = full.resident(program, itemsize)
        if held <= (ALONE if alone else budget) and full.shared(program, itemsize) <= SHARED:
            return [full]
    return []


def cost(program: Program, one: Partition, itemsize: int) -> float:
    """Microseconds for one step: meetings and their way through the cache, reading what others sent, multiplying."""
    programs = one.programs(program.size)
    products = [node for node in program.nodes if node.op == "product"]
    heard = len({arg for node in products for arg in node.args})
    inner = sum(length for _, length in one.pieces(program.size))
    read = heard * one.rows * inner * itemsize / 100e3
    multiplied = one.resident(program, itemsize) / itemsize * one.rows * 2 / 4e6
    if programs == 1:
        return 0.6 + multiplied
    return 1.4 + 0.003 * programs + read + multiplied
