"""Launching a generated kernel: source file and module, memory, arguments, and Triton's compiled form for each call."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elman.compiler.ir import UNITS, StepIR
from elman.compiler.triton.builder import KernelBuilder
from elman.compiler.triton.cluster import cluster_launch
from elman.compiler.triton.emit import Emitter
from elman.compiler.triton.partition import MMA_K, Partition, SyncMode, padded
from elman.ops import kernel_timeout
from elman.ops.cache import private_folder
from elman.ops.kernel_timeout import ABSENT


class Kernel:
    """A program of the IR, compiled for one partition; for any number of rows and steps.

    `history` of a call has shape (directions, nodes, rows, time slots, padded H) and holds every stored node. With
    T + 1 slots the first one (with `reverse` the last one) is for the state before the first step.
    `bidirectional`: two directions in one launch, the second in the opposite order.
    """

    def __init__(
        self,
        program: StepIR,
        saved: tuple[int, ...],
        partition: Partition,
        dtype: torch.dtype,
        reverse: bool,
        precision: str,
        bidirectional: bool = False,
    ):
        self.program, self.partition = program, partition
        self.reverse, self.directions = reverse, 2 if bidirectional else 1
        builder = KernelBuilder(program, saved, partition, dtype.itemsize, precision, reverse, bidirectional)
        self.builder, self.stored = builder, builder.schedule.stored
        self.run = load_module(Emitter(builder).emit()).kernel
        self.width, self.programs = builder.width, builder.num_programs
        self.packs_pairs = partition.packs_pairs(dtype.itemsize) and program.size % 2 == 0
        self.polls_history = partition.sync in (SyncMode.SENTINEL, SyncMode.CLUSTER_SENTINEL) and self.programs > 1
        self.exchange = builder.exchange if builder.clustered else None
        self.compiled: dict[Any, Any] = {}

    def slot(self, node: int) -> int:
        """Of a stored node, in `history`."""
        return self.stored.index(node)

    def rows(self, batch: int) -> int:
        """B rounded up to whole groups."""
        return self.partition.groups(batch) * self.partition.rows

    def partial_sums(self, batch: int, time: int) -> int:
        """Elements of global memory for partial sums of totals."""
        return self.directions * time * len(self.builder.totals) * self.rows(batch) * self.programs

    def __call__(
        self,
        history: Tensor,
        loads: Sequence[Mapping[tuple[str, int], Tensor]],
        initial: Sequence[Sequence[Tensor]],
        parameters: Sequence[Mapping[str, Tensor]],
        lengths: Tensor | None = None,
        *,
        partial_sums: Tensor | None = None,
        max_spins: int = kernel_timeout.PATIENCE,
        new_history: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Fills `history`, of any strides; returns the last state and the summed outputs, (directions · parts, B, H).

        For each direction: step inputs, (B, T, H) or (B, T) for one number per row, parts of the initial state, (B, H),
        and parameters. `new_history`: nothing was computed in this history before.
        """
        first = next(iter(loads[0].values()))
        batch, time = first.shape[:2]
        device, program, directions = first.device, self.program, self.directions
        groups = self.partition.groups(batch)
        assert history.shape[0] == len(loads) == len(initial) == len(parameters) == directions
        assert history.shape[2] == self.rows(batch)
        direction_stride, node_stride, row_stride, time_stride, unit_stride = history.stride()
        assert unit_stride == 1
        kernel_timeout.check(device)
        flag = kernel_timeout.of(device)[0]
        shape, parts, summed = (batch, program.size), len(program.next_state), len(program.accumulated)
        final = torch.empty(directions * parts, *shape, dtype=torch.float32, device=device)
        # arguments that the kernel never touches get some other tensor
        sums = final.new_empty(directions * summed, *shape) if summed else final
        if partial_sums is None:
            partial_sums = final.new_empty(self.partial_sums(batch, time)) if self.builder.totals else final
        if new_history:
            self._initialize(history, initial, batch, time)
        counters = flag
        if self.builder.uses_counter:  # one per group, 128 bytes apart
            counters = torch.zeros(directions * groups * 32, dtype=torch.int32, device=device)
        lengths = flag if lengths is None else lengths.to(device, torch.int32)
        arguments: list[Any] = [time, batch, max_spins, counters, flag, lengths]
        arguments += [history, time_stride, row_stride, node_stride, partial_sums, final, sums]
        arguments += [direction_stride] if directions > 1 else []
        for name in self.builder.parameters:
            tensors = _same_layout([self._padded(name, own[name]) for own in parameters])
            arguments += [*tensors, tensors[0].stride(0)]
        for states in zip(*initial, strict=True):
            tensors = _same_layout(states)
            arguments += [*tensors, tensors[0].stride(0)]
        for source, part, kind in self.builder.loads:
            tensors = _same_layout([own[source, part] for own in loads])
            if kind == UNITS and self.packs_pairs:
                tensors = _packed_pairs(tensors, history.dtype)
            strides = tensors[0].stride()
            arguments += [*tensors, strides[1], strides[0]]
        self._launch((groups, 1 if self.exchange else self.programs, directions), arguments, device)
        if self.programs > 1 and self.partition.sync != SyncMode.CLUSTER_BARRIER:  # which cannot time out
            kernel_timeout.send(device)
        return final, sums

    def _launch(self, grid: tuple[int, int, int], arguments: list[Any], device: torch.device) -> None:
        """Triton's binding of arguments takes longer than all else here, so a compiled form is launched directly for
        arguments that Triton would not specialize anew."""
        cuda = device.type == "cuda"
        key = torch.cuda.current_device() if cuda else None, *[_specialization_key(value) for value in arguments]
        if key in self.compiled:
            self.compiled[key][grid](*arguments)
            return
        options: dict[str, Any] = {"num_warps": self.partition.warps, "num_stages": 1}
        if self.exchange:
            compiled = self.run.warmup(*arguments, grid=grid, **options)
            self.compiled[key] = cluster_launch(compiled, self.programs, self.exchange)
            self.compiled[key][grid](*arguments)
            return
        if self.programs > 1 and cuda:
            options["launch_cooperative_grid"] = True  # all programs run at the same time, or the launch fails
        compiled = self.run[grid](*arguments, **options)
        if compiled is not None:  # the interpreter compiles nothing
            self.compiled[key] = compiled

    def _padded(self, name: str, parameter: Tensor) -> Tensor:
        """A matrix with rows that start at aligned addresses, so that loads are vectorized."""
        if name not in self.builder.matrices or parameter.stride(0) % MMA_K == 0:
            return parameter
        return F.pad(parameter, (0, padded(parameter.shape[1]) - parameter.shape[1]))

    def _initialize(self, history: Tensor, initial: Sequence[Sequence[Tensor]], batch: int, time: int) -> None:
        """The sentinel into all that is polled, 0 into padding units and rows, and the state before the first step."""
        stored, size = self.stored, self.program.size
        if self.polls_history:
            bits = history.view(torch.int16 if history.dtype.itemsize == 2 else torch.int32)
            if len(self.builder.polled) == len(stored):
                bits.fill_(ABSENT)  # one launch
            else:
                for node in self.builder.polled:
                    bits[:, self.slot(node)] = ABSENT
        if size < self.width:
            history[..., size:] = 0
        if history.shape[3] == time:
            return
        for direction, (own, reverse) in enumerate(zip(initial, (self.reverse, not self.reverse), strict=False)):
            before = time if reverse else 0
            if batch < history.shape[2]:
                history[direction, :, batch:, before] = 0
            for index, part in zip(self.program.next_state, own, strict=True):
                if index in stored:
                    history[direction, stored.index(index), :batch, before, :size] = part


def _specialization_key(value: Any) -> Any:
    """What Triton specializes an argument for: dtype and alignment; 1, multiples of 16, and 32 bits for integers."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    return value == 1, value % 16 == 0, value < 2**31


def _same_layout(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors of both directions in one dtype and with equal strides; contiguous along a row."""
    if len(tensors) == 2 and tensors[0].dtype != tensors[1].dtype:
        dtype = torch.promote_types(tensors[0].dtype, tensors[1].dtype)
        tensors = [tensor.to(dtype) for tensor in tensors]
    strides = tensors[0].stride()
    same = strides[-1] == 1 and (len(tensors) == 1 or strides == tensors[1].stride())
    return tensors if same else [tensor.contiguous() for tensor in tensors]


def _packed_pairs(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """Two 16-bit values as one int32, where all rows start at multiples of 4 bytes."""
    for one in tensors:
        odd = one.stride(0) % 2 or one.stride(1) % 2 or one.storage_offset() % 2 or one.data_ptr() % 4
        if odd or one.dtype != dtype:
            return tensors
    return [one.view(torch.int32) for one in tensors]


class _SourceLoader(SourceFileLoader):
    """Runs the source itself, never bytecode beside it, which may be of other source."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_module(source: str) -> ModuleType:
    """The source as a module from a file in the cache folder: Triton parses a kernel's file."""
    name = f"recurrence_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    path = private_folder("kernels") / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(source)
        temporary.replace(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
