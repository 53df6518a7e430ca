"""A unit program in machine code, ready to run: its library loaded, its matrices packed, its rows shared by threads."""

import ctypes
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.ops.native import build
from elman.ops.native.memory import c_type
from elman.ops.recurrence.cpp import Emitted, source
from elman.ops.recurrence.evaluating import vector
from elman.ops.recurrence.units import Program

WORTH_A_THREAD = 1 << 25  # multiplications of a thread's rows: below, waking it takes as long
Address, Number = ctypes.c_void_p, ctypes.c_int64


class Walk:
    """One program and its function `run`, for any number of rows, steps and units."""

    def __init__(self, program: Program, emitted: Emitted, kind: torch.dtype, run: Any):
        self.program, self.emitted, self.kind, self.run = program, emitted, kind, run
        self.products = _products(kind)

    def __call__(
        self,
        loads: Mapping[tuple[str, int], Tensor],
        initial: list[Tensor],
        weights: Mapping[str, Tensor],
        stored: list[Tensor],
        lengths: Tensor | None = None,
        down: bool = False,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Fills `stored`; gives the last state and what was summed, for each row.

        Loads and stored are (batch, time, H), or (batch, time) where all units share a number.
        """
        size, kind = self.program.size, self.kind
        batch, time = next(iter(loads.values())).shape[:2]
        final = [torch.empty(batch, size, dtype=kind) for _ in self.program.carried]
        sums = [torch.zeros(batch, size, dtype=kind) for _ in self.program.summed]
        states = {"initial": initial, "final": final, "sums": sums}
        addresses: list[int] = []
        strides: list[int] = []
        held: list[Tensor] = []  # alive until the walk has ended
        for what, which in self.emitted.slots:
            if what in states:
                one, apart = states[what][which], (states[what][which].stride(0), 0)
            elif what == "vector":
                one, apart = vector(weights[which[0]], which[1], size).contiguous(), (0, 0)
            elif what == "packed":
                one, apart = self.packed(self.emitted.groups[which], weights), (0, 0)
            else:
                one = loads[which] if what == "load" else stored[which]
                apart = one.stride(0), one.stride(1)
            addresses.append(one.data_ptr())
            strides += apart
            held.append(one)
        ends = None if lengths is None else lengths.to(torch.int64).contiguous()
        given = (Address * len(addresses))(*addresses), (Number * len(strides))(*strides)
        rest = time, size, down, *given, None if ends is None else ends.data_ptr(), self.multiply
        _shared(self.run, batch, time * self.multiplications, rest)
        return final, sums

    @property
    def multiplications(self) -> int:
        """Of one row in one step."""
        return self.program.size**2 * sum(len(node.args) for node in self.program.nodes if node.op == "product")

    @property
    def multiply(self) -> int | None:
        return ctypes.cast(self.products.multiply, Address).value

    def packed(self, group: list[int], weights: Mapping[str, Tensor]) -> Tensor:
        """The matrix by which all arguments reach all products of a group, in panels."""
        nodes, size = self.program.nodes, self.program.size
        columns, depth = len(group) * size, len(nodes[group[0]].args) * size
        panels = torch.empty(-(-columns // 16) * 16 * depth, dtype=self.kind)  # whole vectors, of 16 numbers at most
        for number, index in enumerate(group):
            for place, matrix in enumerate(nodes[index].detail):
                one = weights[matrix.parameter]
                by_row, by_column = one.stride()
                first = (matrix.row * by_row + matrix.column * by_column) * size * one.itemsize
                apart = (by_column, by_row) if matrix.flipped else (by_row, by_column)
                shape = *apart, size, number * size, columns, place * size, depth
                self.products.pack(one.data_ptr() + first, *shape, panels.data_ptr())
        return panels


def _shared(run: Any, batch: int, each: int, rest: tuple[Any, ...]) -> None:
    """Rows know nothing of each other, so threads never wait; they end with the call, for a process that forks."""
    threads = min(torch.get_num_threads(), batch, batch * each // WORTH_A_THREAD)
    if threads < 2:
        return run(0, batch, *rest)
    bounds = [batch * n // threads for n in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start, end: run(start, end, *rest), bounds, bounds[1:]))


def load(kind: torch.dtype, functions: list[tuple[Program, Emitted]]) -> list[Walk]:
    """All of them from one library."""
    library = _library(source(kind, [emitted for _, emitted in functions]))
    walks = []
    for program, emitted in functions:
        run = library[emitted.name]
        run.argtypes, run.restype = [*[Number] * 5, *[Address] * 4], None
        walks.append(Walk(program, emitted, kind, run))
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
