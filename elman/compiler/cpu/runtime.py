"""A unit program in machine code, ready to run: its library loaded, its rows shared by threads."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.emit import Emitted, source
from elman.compiler.cpu.step.buffers import c_type
from elman.compiler.ir import Program

WORTH_A_THREAD = 1 << 25  # multiplications of a thread's rows: below, waking it takes as long
Address, Number = ctypes.c_void_p, ctypes.c_int64


class Walk:
    """One program and its function `run`, for any number of rows and steps."""

    def __init__(self, program: Program, kind: torch.dtype, run: Any):
        self.size, self.run = program.size, run
        library = panels(kind)
        self.products = [ctypes.cast(one, Address).value or 0 for one in (library.multiply, library.pack)]
        products = [node for node in program.nodes if node.op == "product"]
        self.multiplications = program.size**2 * sum(len(node.args) for node in products)  # of one row in one step

    def __call__(
        self,
        batch: int,
        time: int,
        tensors: list[tuple[int, int, int]],
        lengths: Tensor | None = None,
        down: bool = False,
    ) -> None:
        """Tensors in the order of their places, weights first: the address, and how far apart rows and steps lie."""
        numbers = [time, self.size, down, 0 if lengths is None else lengths.data_ptr(), *self.products]
        for tensor in tensors:
            numbers += tensor
        _shared(self.run, batch, time * self.multiplications, (Number * len(numbers))(*numbers))


def _shared(run: Any, batch: int, each: int, given: Any) -> None:
    """Rows know nothing of each other, so threads never wait; they end with the call, for a process that forks."""
    threads = min(torch.get_num_threads(), batch, batch * each // WORTH_A_THREAD)
    if threads < 2:
        return run(0, batch, given)
    bounds = [batch * n // threads for n in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start, end: run(start, end, given), bounds, bounds[1:]))


def load(kind: torch.dtype, functions: list[tuple[Program, Emitted]]) -> list[Walk]:
    """All of them from one library."""
    library = _library(source(kind, [emitted for _, emitted in functions]))
    walks = []
    for program, emitted in functions:
        run = library[emitted.name]
        run.argtypes, run.restype = [Number, Number, Address], None
        walks.append(Walk(program, kind, run))
    return walks


@cache
def _library(text: str) -> ctypes.CDLL:
    return build.library(text, "numbers.h")


@cache
def panels(kind: torch.dtype) -> ctypes.CDLL:
    """Packing and multiplying, the same for all programs."""
    text = (Path(__file__).parent / "panels.h").read_text()
    library = _library(f"typedef {c_type(kind)} T;\n{text}")
    library.products.argtypes, library.products.restype = [Address, Number], None
    return library
