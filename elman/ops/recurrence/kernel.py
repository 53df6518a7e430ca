"""A generated kernel, ready to run: its source in a cache folder, its module imported, its memory laid out."""

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elman.ops import alarm
from elman.ops.cache import cache_folder
from elman.ops.recurrence.emit import Emitted, emit
from elman.ops.recurrence.hearing import ABSENT
from elman.ops.recurrence.partition import LEAST, Partition, padded
from elman.ops.recurrence.units import Program


class Kernel:
    """One program for one way of dividing it; any number of rows and steps.

    `history` (rows, steps, places, width) of a run holds each stored node; the state before step 0 is its first slot.
    `both` runs two walks of the program at once, the second in the opposite order.
    """

    def __init__(
        self,
        program: Program,
        kept: tuple[int, ...],
        partition: Partition,
        kind: torch.dtype,
        down: bool,
        precision: str,
        both: bool = False,
    ):
        self.program, self.partition = program, partition
        self.down, self.ways = down, 2 if both else 1
        self.emitted: Emitted = emit(program, kept, partition, kind.itemsize, precision, down, both)
        self.run = _module(self.emitted.source).kernel
        self.width = padded(program.size)
        self.matrices = program.matrices()

    def place(self, node: int) -> int:
        return self.emitted.stored.index(node)

    def rows(self, batch: int) -> int:
        """With those that fill up the last group."""
        return self.partition.groups(batch) * self.partition.rows

    def shares(self, batch: int, time: int) -> int:
        """How many shares of totals the programs write for each other."""
        each = self.emitted.totals * self.rows(batch) * self.partition.programs(self.program.size)
        return self.ways * time * each

    def __call__(
        self,
        history: Tensor,
        loads: Sequence[Mapping[tuple[str, int], Tensor]],
        initial: Sequence[Sequence[Tensor]],
        parameters: Sequence[Mapping[str, Tensor]],
        lengths: Tensor | None = None,
        *,
        partials: Tensor | None = None,
        patience: int = alarm.PATIENCE,
        fresh: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Fills `history` (ways, places, rows, slots, width), any strides; gives the last state and what was summed,
        (ways, parts, batch, H).

        Each way has its loads, (batch, time, H), or (batch, time) where all units share a number, its initial parts,
        (batch, H), and its parameters. `fresh`: nothing was computed in this history before.
        """
        first = next(iter(loads[0].values()))
        batch, time = first.shape[:2]
        device, size = first.device, self.program.size
        groups, programs = self.partition.groups(batch), self.partition.programs(size)
        assert history.shape[0] == len(loads) == len(initial) == len(parameters) == self.ways
        assert history.shape[2] == self.rows(batch)
        assert history.stride(4) == 1
        alarm.check(device)
        empty: dict[str, Any] = {"dtype": torch.float32, "device": device}
        final = torch.empty(self.ways, len(self.program.carried), batch, size, **empty)
        sums = torch.empty(self.ways, len(self.program.summed), batch, size, **empty)
        partials = torch.empty(self.shares(batch, time), **empty) if partials is None else partials
        if fresh:
            self._clear(history, partials, time)
        counters = torch.zeros(self.ways * groups * 32, dtype=torch.int32, device=device)
        lengths = counters if lengths is None else lengths.to(device, torch.int32)
        given: list[Any] = [time, batch, patience, counters, alarm.of(device)[0], lengths]
        given += [history, history.stride(3), history.stride(2), history.stride(1), partials, final, sums]
        given += [history.stride(0)] if self.ways > 1 else []
        for name in self.emitted.parameters:
            tensors = _alike([self._aligned(name, own[name]) for own in parameters])
            given += [*tensors, tensors[0].stride(0)]
        for states in zip(*initial, strict=True):
            tensors = _alike(states)
            given += [*tensors, tensors[0].stride(0)]
        for source, part, _ in self.emitted.loads:
            tensors = _alike([own[source, part] for own in loads])
            given += [*tensors, tensors[0].stride(1), tensors[0].stride(0)]
        options: dict[str, Any] = {"num_warps": self.partition.warps, "num_stages": 1}
        if programs > 1 and device.type == "cuda":
            options["launch_cooperative_grid"] = True  # all run at the same time, or none
        self.run[(groups, programs, self.ways)](*given, **options)
        if programs > 1:
            alarm.send(device)
        return final, sums

    def _aligned(self, name: str, parameter: Tensor) -> Tensor:
        """Rows of a matrix begin where many numbers can be read at once."""
        if name not in self.matrices or parameter.stride(0) % LEAST == 0:
            return parameter
        return F.pad(parameter, (0, padded(parameter.shape[1]) - parameter.shape[1]))

    def _clear(self, history: Tensor, partials: Tensor, time: int) -> None:
        """Units that pad a row are 0; what programs look at until it is there is not there yet."""
        if self.partition.poll == "data" and self.partition.programs(self.program.size) > 1:
            partials.view(torch.int32).fill_(ABSENT)
            bits = history.view(torch.int16 if history.dtype.itemsize == 2 else torch.int32)
            awaited = {self.place(node): node in self.program.carried for node in self.emitted.awaited}
            if len(awaited) == bits.shape[1] and not any(awaited.values()):
                bits.fill_(ABSENT)  # at once, which is faster
                awaited = {}
            for place, carried in awaited.items():
                for own, down in zip(bits, (self.down, not self.down), strict=False):
                    first = int(carried and not down)  # before it the state at the start
                    own[place, :, first : first + time] = ABSENT
        history[..., self.program.size :] = 0


def _alike(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same of each way: in one dtype, with the same strides, the numbers of a row side by side."""
    kind = functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
    tensors = [tensor.to(kind) for tensor in tensors]
    same = len({tensor.stride() for tensor in tensors}) == 1 and tensors[0].stride(-1) == 1
    return tensors if same else [tensor.contiguous() for tensor in tensors]


def _module(source: str) -> ModuleType:
    """Triton reads a kernel's source from its file, which is written anew unless it is exactly what it should be."""
    name = f"recurrence_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    path = cache_folder("kernels") / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(source)
        aside.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
