"""The linear recurrence on a GPU: launches the decoupled look-back kernel of `lookback.py`, with autograd.

The gradient is the same scan in the opposite direction, with decays shifted by one step (`late`). It also stores the
product of each gradient with the state before it (`earlier`): the gradient of the decay.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.ops import kernel_timeout
from elman.ops.forms import first_problem
from elman.ops.scan.chunked import common_dtype, last_state
from elman.shapes import Lengths

LATENCY_ELEMENTS = 1_900_000  # elements that a large GPU's memory moves while a state is passed on, with a margin
MAX_WINDOW = 32  # tiles per window: more effects to combine, fewer states to wait for
MAX_ROW = 2**31  # elements of a row, for 32-bit indices


class LaunchConfig(NamedTuple):
    """Sizes of a launch; they do not change the result."""

    block: int = 32  # channels of a program, at least 32 per warp
    steps: int = 64  # of a tile, all loaded before the first is used
    warps: int = 1
    registers: int | None = None  # per thread, at most: fewer registers mean higher occupancy


PLAN = LaunchConfig(registers=152)
BACK = LaunchConfig(block=128, steps=32, warps=4, registers=168)  # with products: a third element per step


def obstacle(inputs: Tensor) -> str | None:
    """Why the Triton kernels cannot run."""
    if inputs.device.type != "cuda":
        return f"the kernel needs a GPU, not {inputs.device.type}"
    row = inputs.numel() // max(1, len(inputs))
    problems = {
        "the kernel needs triton, which is not installed": find_spec("triton") is None,
        "the kernel does not support complex numbers": inputs.is_complex(),
        "the batch is empty": inputs.numel() == 0,
        f"a row has {row} elements, more than the kernel's {MAX_ROW}": row >= MAX_ROW,
    }
    return first_problem(problems)


def run(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """The reference's values and gradients; half-precision inputs are converted in registers, not in memory."""
    batch, time = inputs.shape[:2]
    start = initial.to(common_dtype(decay, inputs, initial))
    flat = (
        decay.expand(inputs.shape).reshape(batch, time, -1),
        inputs.reshape(batch, time, -1),
        start.reshape(batch, -1),
    )
    history, final = _Scan.apply(*flat, reverse)
    history = history.view(inputs.shape)
    if lengths is None or reverse:
        return history, final.view(initial.shape)
    return history, last_state(history, start, lengths)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, decay, inputs, initial, reverse):  # type: ignore[no-untyped-def]
        history = torch.empty(inputs.shape, dtype=initial.dtype, device=inputs.device)
        final = walk(decay, inputs, initial, history, down=reverse)
        ctx.save_for_backward(decay, history, initial)
        ctx.reverse, ctx.dtype = reverse, inputs.dtype
        return history, final

    @staticmethod
    @once_differentiable
    def backward(ctx, for_history, for_final):  # type: ignore[no-untyped-def]
        decay, history, initial = ctx.saved_tensors
        first = -1 if ctx.reverse else 0
        for_decay, for_inputs = None, torch.empty(history.shape, dtype=ctx.dtype, device=history.device)
        if ctx.needs_input_grad[0]:
            for_decay = torch.empty(history.shape, dtype=decay.dtype, device=history.device)
        given = decay, for_history, for_final, for_inputs
        total = walk(*given, down=not ctx.reverse, late=True, earlier=history, products=for_decay)
        if for_decay is not None:
            for_decay[:, first] = total * initial
        return for_decay, for_inputs, total * decay[:, first], None


def walk(
    decay: Tensor,
    inputs: Tensor,
    start: Tensor,
    states: Tensor,
    *,
    down: bool = False,
    late: bool = False,
    earlier: Tensor | None = None,
    products: Tensor | None = None,
) -> Tensor:
    """Fills `states` (and `products`), all (batch, time, channels), from `start` on; returns the last state."""
    from elman.ops.scan.lookback import ABSENT, HEAD, lookback

    plan = PLAN if products is None else BACK
    # else several warps would poll the same word, and could see it at different times
    assert plan.warps == 1 or plan.block >= 32 * plan.warps
    batch, time, channels = states.shape
    chains, tiles = batch * -(-channels // plan.block), -(-time // plan.steps)
    moved = chains * plan.block * plan.steps * (3 if products is None else 5)
    window = min(MAX_WINDOW, -(-LATENCY_ELEMENTS // moved), tiles)
    slots = -(-tiles // window) + (2 * tiles if window > 1 else 0)
    ended, device = torch.empty_like(start, memory_format=torch.contiguous_format), start.device
    words = torch.int64 if start.dtype == torch.float64 else torch.int32
    mailbox = torch.full((HEAD.value + slots * ended.numel(),), ABSENT.value, dtype=words, device=device)
    alarm = kernel_timeout.of(device)[0]
    given = decay, inputs, start.contiguous(), states, earlier, products, ended, mailbox, alarm
    kernel_timeout.check(device)
    with torch.cuda.device_of(inputs):
        lookback[(chains * tiles,)](
            *given,
            *(time, channels, batch, window, kernel_timeout.PATIENCE),
            *decay.stride(),
            *inputs.stride(),
            DOWN=down,
            LATE=int(late),
            PRODUCTS=products is not None,
            BLOCK=plan.block,
            STEPS=plan.steps,
            num_warps=plan.warps,
            maxnreg=plan.registers if window == 1 else None,
        )
    kernel_timeout.send(device)
    return ended
