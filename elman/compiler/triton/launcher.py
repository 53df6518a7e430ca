"""A generated kernel, ready to run: its source in a cache folder, its module imported, its memory laid out."""

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

from elman.compiler.ir import UNITS, StepIR
from elman.compiler.triton.cluster import clustered
from elman.compiler.triton.emit import Emitted, Emitter
from elman.compiler.triton.partition import LEAST, Partition, padded
from elman.ops import kernel_timeout
from elman.ops.cache import cache_folder
from elman.ops.sentinel import ABSENT


class Kernel:
    """One program for one way of dividing it; any number of rows and steps.

    `history` (ways, places, rows, slots, width) of a run holds each stored node; with one slot more than steps, the
    first slot, or the last of a walk down, is the state before the first step.
    `both` runs two walks of the program at once, the second in the opposite order.
    """

    def __init__(
        self,
        program: StepIR,
        kept: tuple[int, ...],
        partition: Partition,
        kind: torch.dtype,
        down: bool,
        precision: str,
        both: bool = False,
    ):
        self.program, self.partition = program, partition
        self.down, self.ways = down, 2 if both else 1
        writer = Emitter(program, kept, partition, kind.itemsize, precision, down, both)
        self.emitted: Emitted = writer.emitted()
        self.run = module(self.emitted.source).kernel
        self.width = padded(program.size)
        self.matrices = program.matrices()
        self.programs = partition.programs(program.size)
        self.pairing = partition.paired(kind.itemsize) and program.size % 2 == 0
        self.looking = partition.poll in ("data", "mail") and self.programs > 1
        self.counting = writer.counting
        self.mailbox = writer.mailbox if writer.near else None
        self.compiled: dict[Any, Any] = {}

    def place(self, node: int) -> int:
        return self.emitted.stored.index(node)

    def rows(self, batch: int) -> int:
        """With those that fill up the last group."""
        return self.partition.groups(batch) * self.partition.rows

    def shares(self, batch: int, time: int) -> int:
        """How many shares of totals the programs write for each other."""
        each = self.emitted.totals * self.rows(batch) * self.programs
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
        patience: int = kernel_timeout.PATIENCE,
        fresh: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Fills `history`, any strides; gives the last state and what was summed, (ways · parts, batch, H).

        Each way has its loads, (batch, time, H), or (batch, time) where all units share a number, its initial parts,
        (batch, H), and its parameters. `fresh`: nothing was computed in this history before.
        """
        first = next(iter(loads[0].values()))
        batch, time = first.shape[:2]
        device, program, ways = first.device, self.program, self.ways
        groups = self.partition.groups(batch)
        assert history.shape[0] == len(loads) == len(initial) == len(parameters) == ways
        assert history.shape[2] == self.rows(batch)
        way_stride, place_stride, row_stride, time_stride, one = history.stride()
        assert one == 1
        kernel_timeout.check(device)
        alert = kernel_timeout.of(device)[0]
        final = torch.empty(ways * len(program.next_state), batch, program.size, dtype=torch.float32, device=device)
        # what is never written needs no memory of its own
        sums = final.new_empty(ways * len(program.accumulated), batch, program.size) if program.accumulated else final
        if partials is None:
            partials = final.new_empty(self.shares(batch, time)) if self.emitted.totals else final
        if fresh:
            self._begin(history, initial, batch, time)
        counters = alert
        if self.counting:
            counters = torch.zeros(ways * groups * 32, dtype=torch.int32, device=device)
        lengths = alert if lengths is None else lengths.to(device, torch.int32)
        given: list[Any] = [time, batch, patience, counters, alert, lengths]
        given += [history, time_stride, row_stride, place_stride, partials, final, sums]
        given += [way_stride] if ways > 1 else []
        for name in self.emitted.parameters:
            tensors = _alike([self._aligned(name, own[name]) for own in parameters])
            given += [*tensors, tensors[0].stride(0)]
        for states in zip(*initial, strict=True):
            tensors = _alike(states)
            given += [*tensors, tensors[0].stride(0)]
        for source, part, form in self.emitted.loads:
            tensors = _alike([own[source, part] for own in loads])
            if form == UNITS and self.pairing:
                tensors = _in_pairs(tensors, history.dtype)
            strides = tensors[0].stride()
            given += [*tensors, strides[1], strides[0]]
        self._launch((groups, 1 if self.mailbox else self.programs, ways), given, device)
        if self.programs > 1 and self.partition.poll != "near":  # who meets at a barrier never waits in vain
            kernel_timeout.send(device)
        return final, sums

    def _launch(self, grid: tuple[int, int, int], given: list[Any], device: torch.device) -> None:
        """Binding arguments takes Triton longer than all the rest: what it once compiled for arguments of these sorts
        is launched at once."""
        cuda = device.type == "cuda"
        key = torch.cuda.current_device() if cuda else None, *[_sort(value) for value in given]
        if key in self.compiled:
            self.compiled[key][grid](*given)
            return
        options: dict[str, Any] = {"num_warps": self.partition.warps, "num_stages": 1}
        if self.mailbox:
            self.compiled[key] = clustered(self.run.warmup(*given, grid=grid, **options), self.programs, self.mailbox)
            self.compiled[key][grid](*given)
            return
        if self.programs > 1 and cuda:
            options["launch_cooperative_grid"] = True  # all run at the same time, or none
        compiled = self.run[grid](*given, **options)
        if compiled is not None:  # the interpreter compiles nothing
            self.compiled[key] = compiled

    def _aligned(self, name: str, parameter: Tensor) -> Tensor:
        """Rows of a matrix begin where many numbers can be read at once."""
        if name not in self.matrices or parameter.stride(0) % LEAST == 0:
            return parameter
        return F.pad(parameter, (0, padded(parameter.shape[1]) - parameter.shape[1]))

    def _begin(self, history: Tensor, initial: Sequence[Sequence[Tensor]], batch: int, time: int) -> None:
        """What programs look at until it is there is not there yet; units and rows that only fill up are 0; where
        there is a slot for it, the state before the first step is written."""
        stored, size = self.emitted.stored, self.program.size
        if self.looking:
            bits = history.view(torch.int16 if history.dtype.itemsize == 2 else torch.int32)
            if len(self.emitted.awaited) == len(stored):
                bits.fill_(ABSENT)  # at once, which is faster
            else:
                for node in self.emitted.awaited:
                    bits[:, self.place(node)] = ABSENT
        if size < self.width:
            history[..., size:] = 0
        if history.shape[3] == time:
            return
        for way, (own, down) in enumerate(zip(initial, (self.down, not self.down), strict=False)):
            slot = time if down else 0
            if batch < history.shape[2]:
                history[way, :, batch:, slot] = 0
            for index, part in zip(self.program.next_state, own, strict=True):
                if index in stored:
                    history[way, stored.index(index), :batch, slot, :size] = part


def _sort(value: Any) -> Any:
    """All of an argument that Triton compiles anew for."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    return value == 1, value % 16 == 0, value < 2**31


def _alike(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The same of each way: in one dtype, with the same strides, the numbers of a row side by side."""
    if len(tensors) == 2 and tensors[0].dtype != tensors[1].dtype:
        kind = torch.promote_types(tensors[0].dtype, tensors[1].dtype)
        tensors = [tensor.to(kind) for tensor in tensors]
    strides = tensors[0].stride()
    same = strides[-1] == 1 and (len(tensors) == 1 or strides == tensors[1].stride())
    return tensors if same else [tensor.contiguous() for tensor in tensors]


def _in_pairs(tensors: Sequence[Tensor], kind: torch.dtype) -> Sequence[Tensor]:
    """Two numbers as one, if all begin where a pair can."""
    for one in tensors:
        odd = one.stride(0) % 2 or one.stride(1) % 2 or one.storage_offset() % 2 or one.data_ptr() % 4
        if odd or one.dtype != kind:
            return tensors
    return [one.view(torch.int32) for one in tensors]


def module(source: str) -> ModuleType:
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
