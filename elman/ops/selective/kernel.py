"""The selective scan on a GPU: launches the kernels of `fused.py` and sums their partial gradients."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.ops.scan.chunked import common_dtype
from elman.ops.selective.chunked import Selection
from elman.shapes import Sequence


class LaunchConfig(NamedTuple):
    """Sizes of a launch; they do not change the result."""

    steps: int = 8  # of a tile, at whose beginning the state is saved for backward; 16 do not fit the registers
    block: int = 8  # channels of a program
    warps: int = 1  # with more, sums over channels need shared memory
    programs: int = 2048  # 16 per SM of an H200; with fewer rows and channels, time is divided into segments
    shortest: int = 128  # steps of a segment, at least


PLAN = LaunchConfig()


def run(
    x: Sequence, selection: Selection, rate: Tensor, initial: Tensor, skip: Tensor | None, gate: Sequence | None
) -> tuple[Sequence, Tensor]:
    """The reference's values and gradients, in float32 at least; saves one state per tile, for backward only."""
    inputs = x, *selection, rate, initial, skip, gate
    trained = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in inputs)
    return _Fused.apply(*inputs, trained)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, delta, write, read, rate, initial, skip, gate, trained):  # type: ignore[no-untyped-def]
        dtype = common_dtype(x, delta, write, read, rate, initial)
        x, delta, write, read = (part.contiguous() for part in (x, delta, write, read))
        powers = (rate.to(dtype) * math.log2(math.e)).contiguous()  # exp(Δ λ) = exp2(Δ · powers)
        start, gate = initial.to(dtype).contiguous(), _rows(gate)
        launcher = _Launcher(x, gate, powers)
        starts = x.new_empty(len(x), launcher.tiles, *powers.shape, dtype=dtype) if trained else None
        outputs, final = torch.empty(x.shape, dtype=dtype, device=x.device), torch.empty_like(start)
        effects = launcher.fold(delta, x, None, write, down=False)
        launcher.launch("forward", x, delta, write, read, powers, skip, gate, start, *effects, starts, outputs, final)
        ctx.save_for_backward(x, delta, write, read, powers, skip, gate, starts)
        ctx.dtypes = rate.dtype, initial.dtype
        return outputs, final

    @staticmethod
    @once_differentiable
    def backward(ctx, for_outputs, for_final):  # type: ignore[no-untyped-def]
        *given, starts = ctx.saved_tensors
        x, delta, write, read, powers, skip, gate = given
        launcher = _Launcher(x, gate, powers)
        for_outputs, for_final = for_outputs.contiguous(), for_final.contiguous()
        effects = launcher.fold(delta, for_outputs, gate, read, down=True)
        new = powers.new_empty
        for_x, for_delta = torch.empty_like(x), torch.empty_like(delta)
        for_write, for_read = (new(launcher.blocks, *part.shape) for part in (write, read))
        for_rate = new(len(x), launcher.segments, *powers.shape)
        for_skip = None if skip is None else new(len(x), launcher.segments, len(skip))
        for_gate = None if gate is None else torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        for_initial = torch.empty_like(for_final)
        made = for_x, for_delta, for_write, for_read, for_rate, for_skip, for_gate, for_initial
        launcher.launch("backward", *given, for_final, *effects, starts, for_outputs, *made, batch=len(x))
        rate_dtype, initial_dtype = ctx.dtypes
        return (
            for_x,
            for_delta,
            for_write.sum(0).to(write.dtype),
            for_read.sum(0).to(read.dtype),
            for_rate.sum((0, 1)).to(rate_dtype),
            for_initial.to(initial_dtype),
            None if for_skip is None else for_skip.sum((0, 1)).to(skip.dtype),
            for_gate,
            None,
        )


class _Launcher:
    """Divides time, channels and rows among programs, and launches the kernels."""

    def __init__(self, x: Tensor, gate: Tensor | None, powers: Tensor):
        self.plan, self.powers = PLAN, powers
        self.batch, self.time, self.channels = x.shape
        self.gate_time = self.channels if gate is None else gate.stride(1)
        self.blocks = -(-self.channels // self.plan.block)
        self.tiles = -(-self.time // self.plan.steps)
        segments = min(self.plan.programs // (self.batch * self.blocks), self.time // self.plan.shortest)
        each = -(-self.tiles // segments) if segments > 1 else self.tiles
        self.segments = -(-self.tiles // each)

    def fold(
        self, delta: Tensor, values: Tensor, gate: Tensor | None, vectors: Tensor, down: bool
    ) -> tuple[Tensor, Tensor]:
        """The effect of each segment, if there are several."""
        ended = self.powers.new_empty(self.batch, self.segments, *self.powers.shape)
        totals = self.powers.new_empty(self.batch, self.segments, self.channels)
        if self.segments > 1:
            self.launch("fold", delta, values, gate, vectors, self.powers, ended, totals, DOWN=down)
        return ended, totals

    def launch(self, name: str, *given: Tensor | None, **sizes: int) -> None:
        from elman.ops.selective import fused

        kernel: Any = getattr(fused, name)
        size = self.powers.shape[1]
        with torch.cuda.device_of(self.powers):
            kernel[(self.batch * self.segments * self.blocks,)](
                *given,
                time=self.time,
                tiles=self.tiles,
                segments=self.segments,
                channels=self.channels,
                gate_time=self.gate_time,
                size=size,
                SIZE=1 << (size - 1).bit_length(),
                STEPS=self.plan.steps,
                BLOCK=self.plan.block,
                num_warps=self.plan.warps,
                **sizes,
            )


def _rows(gate: Tensor | None) -> Tensor | None:
    """The gate if its rows have a common stride, such as one half of a matmul's result; else a copy."""
    if gate is None or (gate.stride(2) == 1 and gate.stride(0) == gate.shape[1] * gate.stride(1)):
        return gate
    return gate.contiguous()
