"""A unit program in machine code, ready to run: its library loaded, its matrices packed, its rows shared by threads."""

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.ops.native import build
from elman.ops.native.memory import c_type
from elman.ops.recurrence.cpp import Emitted, source
from elman.ops.recurrence.units import Program

WORTH_A_THREAD = 1 << 25  # multiplications of a thread's rows: below, waking it takes as long
Address, Number = ctypes.c_void_p, ctypes.c_int64
Places = dict[tuple[str, Any], tuple[int, int]]


class Block(NamedTuple):
    """A block of a weight, and where it goes in the panels."""

    weight: int
    row: int
    column: int
    flipped: bool
    shape: tuple[int, int, int, int]  # where its columns begin, of how many; where its inner places begin, of how many
    panels: int  # where those of its group begin


class Walk:
    """One program and its function `run`, for any number of rows and steps.

    `places` say of each slot but weights which tensor it lies in, and where in a row and step of it.
    """

    def __init__(
        self, program: Program, emitted: Emitted, kind: torch.dtype, names: tuple[str, ...], places: Places, run: Any
    ):
        self.program, self.kind, self.run = program, kind, run
        self.products = _products(kind)
        self.multiply = ctypes.cast(self.products.multiply, Address).value
        products = [node for node in program.nodes if node.op == "product"]
        self.multiplications = program.size**2 * sum(len(node.args) for node in products)  # of one row in one step
        starts = [0]
        self.blocks = list(self._blocks(emitted.groups, names, starts))
        self.panels = starts[-1]
        # panels come first, then weights, then what is given
        self.slots: list[tuple[int, int]] = []
        for slot in emitted.slots:
            what, which = slot
            if what == "packed":
                source, start = 0, starts[which]
            elif what == "vector":
                source, start = 1 + names.index(which[0]), which[1] * program.size
            else:
                source, start = places[slot]
                source += 1 + len(names)
            self.slots.append((source, start * kind.itemsize))
        self.addresses, self.strides = Address * len(self.slots), Number * (2 * len(self.slots))

    def __call__(
        self,
        batch: int,
        time: int,
        given: list[tuple[int, int, int]],
        weights: list[Tensor],
        lengths: Tensor | None = None,
        down: bool = False,
    ) -> None:
        """`given` are tensors: the address, and how far apart rows and steps lie. Weights lie in one piece."""
        panels = torch.empty(self.panels, dtype=self.kind, device="cpu")
        for weight, row, column, flipped, shape, start in self.blocks:
            self._pack(weights[weight], row, column, flipped, shape, panels.data_ptr() + start)
        tensors = [(panels.data_ptr(), 0, 0), *((one.data_ptr(), 0, 0) for one in weights), *given]
        addresses = self.addresses(*[tensors[source][0] + start for source, start in self.slots])
        strides = self.strides(*[number for source, _ in self.slots for number in tensors[source][1:]])
        ends = None if lengths is None else lengths.data_ptr()
        rest = time, self.program.size, down, addresses, strides, ends, self.multiply
        _shared(self.run, batch, time * self.multiplications, rest)

    def _pack(self, weight: Tensor, row: int, column: int, flipped: bool, shape: tuple[int, ...], panels: int) -> None:
        size, by_row = self.program.size, weight.shape[-1]
        first = weight.data_ptr() + (row * by_row + column) * size * self.kind.itemsize
        apart = (1, by_row) if flipped else (by_row, 1)
        self.products.pack(first, *apart, size, *shape, panels)

    def _blocks(self, groups: tuple[list[int], ...], names: tuple[str, ...], starts: list[int]) -> Iterator[Block]:
        """Of the matrices by which all arguments reach all products of each group; tells where panels begin and end."""
        nodes, size = self.program.nodes, self.program.size
        for group in groups:
            columns, depth = len(group) * size, len(nodes[group[0]].args) * size
            for number, index in enumerate(group):
                for place, matrix in enumerate(nodes[index].detail):
                    which = names.index(matrix.parameter), matrix.row, matrix.column, matrix.flipped
                    shape = number * size, columns, place * size, depth
                    yield Block(*which, shape, starts[-1] * self.kind.itemsize)
            starts.append(starts[-1] + -(-columns // 16) * 16 * depth)  # whole vectors, of 16 numbers at most


def _shared(run: Any, batch: int, each: int, rest: tuple[Any, ...]) -> None:
    """Rows know nothing of each other, so threads never wait; they end with the call, for a process that forks."""
    threads = min(torch.get_num_threads(), batch, batch * each // WORTH_A_THREAD)
    if threads < 2:
        return run(0, batch, *rest)
    bounds = [batch * n // threads for n in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start, end: run(start, end, *rest), bounds, bounds[1:]))


def load(kind: torch.dtype, names: tuple[str, ...], functions: list[tuple[Program, Emitted, Places]]) -> list[Walk]:
    """All of them from one library; weights are given in the order of `names`."""
    library = _library(source(kind, [emitted for _, emitted, _ in functions]))
    walks = []
    for program, emitted, places in functions:
        run = library[emitted.name]
        run.argtypes, run.restype = [*[Number] * 5, *[Address] * 4], None
        walks.append(Walk(program, emitted, kind, names, places, run))
    return walks


@cache
def _library(text: str) -> ctypes.CDLL:
    return build.library(text, "numbers.h")


@cache
def _products(kind: torch.dtype) -> ctypes.CDLL:
    """Packing and multiplying, the same for all programs."""
    text = (Path(__file__).parent / "panels.h").read_text()
    library = _library(f"typedef {c_type(kind)} T;\n{text}")
    library.pack.argtypes = [Address, *[Number] * 7, Address]
    return library
