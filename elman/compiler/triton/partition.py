"""How a recurrence is divided among the processors of a GPU: groups of rows, and slices of units within a group.

Groups never wait for each other. Within a group every program holds the weights of its own units all the time.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from elman.compiler.ir import Program
from elman.compiler.triton.cluster import LARGE, MOST, Mailbox
from elman.compiler.triton.cluster_exchange import Post
from elman.compiler.triton.schedule import heard, schedule
from elman.compiler.triton.spin_loads import AT_ONCE

LEAST = 16  # the inner dimension of the smallest matrix product that tensor cores take
SHARED = 226 * 1024  # bytes of shared memory of a Hopper processor
WINDOW = 64 * 1024  # bytes of what others sent that are read before they are multiplied
PIECE = 32 * 1024  # bytes of what others sent that make one piece
LONG = 64  # columns of a product that tensor cores take as they lie in shared memory
FEW = 16  # looks of a thread; if there are more, twice as many threads are faster
REGISTERS = 236  # of a thread that have a use of their own; with more of them, numbers go to memory
ROUNDED = 8  # looks of float32 after which there may be more: rounded for products, they take registers twice
CROWDED = 210  # registers of a thread beyond which it is slower
EDGE = 24  # registers that tell units inside from those that fill up
ADDING = 36  # registers that making totals takes
ABREAST = 7, 15  # clusters of more than 8 programs, and of fewer, that an H200 runs at once, if each fills a processor
PROCESSORS = 132  # of an H200
ALONE = 64 * 1024  # up to here a single program holds all weights of a cell and nobody has to be waited for

SECTOR = 32  # bytes that memory moves at least


class Cost(NamedTuple):
    """Microseconds on an H200, from times of many divisions (docs/kernel-log.md): where numbers are looked at, forward
    ones are a twentieth off on average, and a seventh at most."""

    meeting: float
    heard: float  # a megabyte of what others sent
    held: float  # a megabyte of weights in shared memory
    shares: float  # a megabyte of sums that warps add up
    multiplied: float  # a million multiplications
    narrow: float  # each sent value after the first, of units that fill no sector
    total: float  # each program's share of a number that all units share
    again: float  # each further look
    crowded: float  # each register beyond CROWDED
    sent: float = 0.0  # each value that a program sends to another


DATA = Cost(0.95, 34.9, 4.15, 6.8, 0.0, 0.77, 0.0, 0.15, 0.01)
LOAD = Cost(1.44, 24.4, 8.9, 4.9, 0.0, 0.87, 0.003, 0.0, 0.0)
TURNED = Cost(1.45, 26.6, 6.3, 3.1, 0.32, 0.0, 0.005, 0.0, 0.0)
NEAR = DATA._replace(meeting=0.8, narrow=0.0, total=0.02)
MAIL = DATA._replace(meeting=0.65, narrow=0.0, total=0.004)
POST = Cost(0.4, 52.0, 8.0, 11.0, 0.0, 0.0, 0.004, 0.0, 0.01, sent=0.004)  # two programs may share a processor
COSTS = {"load": LOAD, "atomic": LOAD, "data": DATA, "near": NEAR, "mail": MAIL, "post": POST}
SINGLE = Cost(0.3, 0.0, 4.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0)  # a program that is alone; not measured


def padded(size: int) -> int:
    """Numbers from one row of units to the next, so that all rows begin where many can be read at once."""
    return -(-size // LEAST) * LEAST


def powers(count: int) -> list[int]:
    """A number as a sum of powers of two, 3 = 2 + 1: as many parts one matrix product makes together."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


@dataclass(frozen=True)
class Partition:
    rows: int
    """Rows of a group: those that one program computes."""
    units: int
    """Units of a program: a power of two or, where lanes read what they multiply, a sum of two (24 = 16 + 8)."""
    warps: int = 4
    split: int = 1
    """Among how many warps the inner dimension of products is divided."""
    chunk: int = 1024
    """The longest piece of the inner dimension that is read at once."""
    poll: str = "load"
    """How a program waits: by reading a counter ("load"), by adding nothing to it ("atomic"), by looking at the very
    numbers that it needs ("data"), at the barrier of a cluster ("near"), at its numbers and, in shared memory, at
    shares of totals ("mail"), or at such shares and until numbers have come into shared memory too ("post"). In the
    latter four each warp has its share of the inner dimension."""

    turned: bool = False
    """Units on the long side of products, 64 columns at least, where tensor cores take weights from shared memory
    themselves: nothing is loaded again at each step, and no shares of warps are added."""

    gripped: int = 0
    """Pieces of weights that threads hold in registers, where each lane reads what it multiplies; the others lie in
    shared memory."""

    at_once: int = AT_ONCE
    """Looks of a thread before the first is used: each takes four registers, which weights may need more."""

    @property
    def tile(self) -> int:
        """Units that tensors have room for: a power of two."""
        return 1 << (self.units - 1).bit_length()

    @property
    def clustered(self) -> bool:
        """Whether programs of a group are neighbours."""
        return self.poll in ("near", "mail", "post")

    @property
    def quiet(self) -> bool:
        """Whether those who wait keep nobody from the memory that all see: then they may begin as soon as they can."""
        return self.poll in ("near", "post")

    @property
    def laned(self) -> bool:
        """Whether each lane reads what its part of a product takes."""
        return self.poll == "data" or self.clustered

    def paired(self, itemsize: int) -> bool:
        """Whether threads fetch two numbers of 16 bits as one. By themselves they would be taken apart as soon as they
        come, and who does that waits for them."""
        return self.quiet and itemsize == 2 and self.rows * self.tile >= 2 * 32 * self.warps

    def groups(self, batch: int) -> int:
        return math.ceil(batch / self.rows)

    def programs(self, size: int) -> int:
        return math.ceil(size / self.units)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Where each piece of the inner dimension starts and how long it is: powers of two that cover the units."""
        if self.programs(size) == 1:
            return [(0, self.units)]
        step = (2 * LEAST if self.laned else LEAST) * self.split
        left, start, found = math.ceil(size / step) * step, 0, []
        equal = left & -left  # looked at, all pieces have one shape
        while left:
            length = min(self.chunk, equal if self.laned else 1 << (left.bit_length() - 1))
            found.append((start, length))
            start, left = start + length, left - length
        return found

    def resident(self, program: Program, itemsize: int) -> int:
        """Bytes of weights that one program holds."""
        blocks = sum(len(node.args) for node in program.nodes if node.op == "product")
        return blocks * self.units * sum(length for _, length in self.pieces(program.size)) * itemsize

    def gripping(self, program: Program, itemsize: int) -> int:
        """Bytes of weights that the threads of one program hold."""
        pieces = self.pieces(program.size)
        return self.resident(program, itemsize) * self.gripped // len(pieces) if self.gripped else 0

    def columns(self, program: Program) -> list[int]:
        """How many parts each of a step's products makes together."""
        groups = Counter(node.args for node in program.nodes if node.op == "product")
        return [count for total in groups.values() for count in powers(total)]

    def looks(self, program: Program, itemsize: int) -> list[int]:
        """At how many times 16 bytes a thread looks at once, each time it waits for what products take."""
        found = []
        for args in {node.args for node in program.nodes if node.op == "product"}:
            pieces = self.pieces(program.size)
            each = max(1, self.rows * pieces[0][1] * itemsize // 16 // (32 * self.warps))
            many = max(1, self.at_once // each)
            left = len(args) * len(pieces)
            while left > 0:
                found.append(each * min(many, left))
                left -= many
        return sorted(found, reverse=True)

    def registers(self, program: Program, itemsize: int) -> int:
        """Of a thread: for what it hears at once, sums, weights, and what belongs to its units."""
        threads, each = 32 * self.warps, self.rows * self.tile // (32 * self.warps)
        sums = self.rows * self.units * max(self.columns(program)) // 32
        kinds = Counter(node.op for node in program.nodes)
        fetched = 1 if self.paired(itemsize) else 2  # for this step and the next; pairs are taken apart when needed
        own = each * (fetched * kinds["load"] + kinds["vector"] + len(program.carried))
        edge = EDGE * (2 if self.poll == "post" else 1) if program.size % self.units else 0
        adding = ADDING if kinds["total"] else 0
        weights = self.gripping(program, itemsize) // (4 * threads)
        return 4 * self.looks(program, itemsize)[0] + sums + weights + own + edge + adding

    def shared(self, program: Program, itemsize: int) -> int:
        """Bytes of shared memory: weights, and beside them what others sent or, later, the shares of the warps."""
        among_warps = self.split * self.rows * self.tile * max(self.columns(program), default=0) * 4
        longest = max(length for _, length in self.pieces(program.size))
        pieces = max((len(node.args) for node in program.nodes if node.op == "product"), default=0) * len(
            self.pieces(program.size)
        )
        many = min(pieces, max(1, WINDOW // (self.rows * longest * itemsize)))
        read = 0 if self.laned else many * self.rows * longest * itemsize
        mail = self.mailbox(program, itemsize).size if self.clustered else 0
        held = self.resident(program, itemsize) - self.gripping(program, itemsize)
        return held + max(read, among_warps) + mail

    def mailbox(self, program: Program, itemsize: int) -> Mailbox:
        """What lies in shared memory for neighbours to write to."""
        totals = tuple(len(stage.begun) for stage in schedule(program).stages if stage.begun)
        programs, values = self.programs(program.size), len(heard(program))
        post = Post(self.rows, self.units, programs, itemsize, 32 * self.warps, values)
        looking = self.poll in ("mail", "post")
        return Mailbox(self.rows, programs, totals, looking, post if self.poll == "post" else None)


@lru_cache(256)
def partition(
    program: Program, batch: int, itemsize: int, processors: int, shared: int = SHARED, clusters: bool = True
) -> Partition | None:
    """The division that should be fastest; None if nothing fits. `clusters`: whether processors can be neighbours."""
    found = candidates(program, batch, itemsize, processors, shared)
    found = [one for one in found if clusters or not one.clustered]
    return min(found, key=lambda one: cost(program, one, itemsize), default=None)


def tuning(program: Program, batch: int, itemsize: int, processors: int, most: int = 6) -> list[Partition]:
    """Divisions worth a try on a GPU, the most promising first: the best ones of each way to wait and to multiply."""
    found = sorted(candidates(program, batch, itemsize, processors), key=lambda one: cost(program, one, itemsize))
    seen: Counter[tuple[str, bool]] = Counter()
    chosen = []
    for one in found:
        seen[one.poll, one.turned] += 1
        if seen[one.poll, one.turned] <= max(1, most // 2):
            chosen.append(one)
    return chosen[:most]


def candidates(program: Program, batch: int, itemsize: int, processors: int, shared: int = SHARED) -> list[Partition]:
    """All divisions whose programs run at the same time and hold their weights."""
    size = program.size
    found: list[Partition] = []
    whole = max(LEAST, 1 << (size - 1).bit_length())
    for rows in (8, 16, 32, 64, 128):
        if rows > LEAST and rows >= 2 * batch:
            continue
        for units in (8, 16, 24, 32, 48, 64, whole):
            if units >= size and units != whole:
                continue
            groups = math.ceil(batch / rows)
            if groups * math.ceil(size / units) <= processors:
                found += [
                    one
                    for one in _ways(program, Partition(rows, units), itemsize, shared)
                    if _runs(program, one, batch, itemsize, processors, shared)
                ]
    return found


def _runs(program: Program, one: Partition, batch: int, itemsize: int, processors: int, shared: int) -> bool:
    abreast = _abreast(program, one, itemsize, processors, shared)
    return _fits(program, one, itemsize, shared) and one.groups(batch) <= abreast


def _abreast(program: Program, one: Partition, itemsize: int, processors: int, shared: int) -> float:
    """How many groups run at the same time. Neighbours lie in one part of the chip, where some processors are left
    over."""
    if not one.clustered:
        return math.inf
    clusters = ABREAST[one.programs(program.size) <= MOST] * processors // PROCESSORS
    small = one.warps == 4 and 2 * one.shared(program, itemsize) <= shared  # two of them share a processor
    return 2 * clusters if small else clusters


def _ways(program: Program, one: Partition, itemsize: int, shared: int) -> list[Partition]:
    """How a division may wait and multiply."""
    loads = sum(node.op == "load" for node in program.nodes)
    warps = 4 if one.resident(program, itemsize) <= 64 * 1024 and loads <= 8 else 8
    chunk = PIECE // (one.rows * itemsize)
    if one.programs(program.size) == 1:
        return [replace(one, warps=warps, chunk=max(LEAST, chunk))]
    columns = one.columns(program)
    split = warps if columns else 1
    found = [replace(one, warps=warps, split=split, chunk=max(LEAST * split, chunk))]
    if not columns:
        return [] if one.units < one.tile else found
    if one.units < one.tile:  # blocks of units are multiplied by themselves, if they fill a tile of tensor cores
        if any(block * each % LEAST for block in powers(one.units) for each in columns):
            return []
        found = []
    for poll in _polls(program, one):
        few, many = (replace(one, warps=n, split=n, poll=poll) for n in (4, 8))
        easy = few.looks(program, itemsize)[0] <= FEW and few.registers(program, itemsize) <= REGISTERS
        found += [_gripping(program, each, itemsize, shared) for each in [few] * easy + [many]]
    if itemsize == 2 and one.units == one.tile and one.units * min(columns) >= LONG:
        found.append(replace(one, chunk=256, turned=True))
    return found


def _fits(program: Program, one: Partition, itemsize: int, shared: int) -> bool:
    alone = one.programs(program.size) == 1
    if one.rows < LEAST and (alone or not one.laned or one.rows * one.units < 32 * one.warps):
        return False  # products of few rows are made by lanes alone, and each thread has a unit
    if one.shared(program, itemsize) > shared or (alone and one.resident(program, itemsize) > ALONE):
        return False
    if not one.laned:
        return True
    if one.poll == "post" and not one.paired(itemsize):
        return False  # slower than others; letters of float32 were never timed
    looks, rounds = one.looks(program, itemsize), schedule(program).rounds
    if itemsize > 2 and len(looks) > rounds and looks[0] > ROUNDED:
        return False
    return one.registers(program, itemsize) <= REGISTERS and len(looks) <= 2 * rounds


def _polls(program: Program, one: Partition) -> list[str]:
    """How programs may wait where each lane reads what it multiplies."""
    single = schedule(program).rounds == 1
    if one.programs(program.size) not in (*range(MOST + 1), LARGE):
        return ["data"] * single
    # with several rounds, those who look too early keep others from their memory
    looking = "data" if single else "mail" if any(node.op == "total" for node in program.nodes) else "near"
    return [looking, "post"]


def _gripping(program: Program, one: Partition, itemsize: int, shared: int) -> Partition:
    """With as much of the weights in registers as is fastest."""
    if one.units * min(one.columns(program)) % LEAST:
        return one
    found = [one]
    chunk = one.chunk
    while chunk >= 2 * LEAST * one.split:
        tried = [replace(one, chunk=chunk)]
        if one.poll == "data":  # with several meetings, other numbers take what that would leave
            tried.append(replace(tried[0], at_once=math.ceil(sum(tried[0].looks(program, itemsize)) / 2)))
        for count in range(1, len(tried[0].pieces(program.size)) + 1):
            found += [replace(each, gripped=count) for each in tried]
        chunk //= 2
    fitting = [each for each in found if _fits(program, each, itemsize, shared)]
    several = any(node.op == "total" or (node.op == "product" and len(node.args) > 1) for node in program.nodes)
    sign = 1 if several else -1  # of several values, and beside totals, short pieces are faster; of one, long ones
    return min(fitting, key=lambda each: (cost(program, each, itemsize), sign * each.chunk), default=one)


def cost(program: Program, one: Partition, itemsize: int) -> float:
    """Microseconds for one step, roughly."""
    products = [node for node in program.nodes if node.op == "product"]
    sent = len(heard(program))
    inner = sum(length for _, length in one.pieces(program.size))
    held, rounds = one.resident(program, itemsize), schedule(program).rounds
    alone = one.programs(program.size) == 1
    each = SINGLE if alone else TURNED if one.turned else COSTS[one.poll]
    return (
        (1 if alone else rounds) * each.meeting
        + sent * one.rows * inner * itemsize * each.heard / 1e6
        + (held - one.gripping(program, itemsize)) * each.held / 1e6
        + one.split * one.rows * one.tile * len(products) * 4 * each.shares / 1e6
        + held * one.rows / 2 * each.multiplied / 1e6  # in float32 each takes twice as long
        + sent * one.programs(program.size) * each.sent
        + max(0, sent - 1) * (one.units * itemsize < SECTOR) * each.narrow
        + sum(node.op == "total" for node in program.nodes) * one.programs(program.size) * each.total
        + max(0, len(one.looks(program, itemsize)) - rounds) * each.again
        + (max(0, one.registers(program, itemsize) - CROWDED) * each.crowded if each.crowded else 0.0)
    )
