"""Layer norm on a GPU: launches the kernels of `fused.py`, with autograd."""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16)  # its rsqrt is approximate, which float32 would show
MAX_SIZE = 16384  # elements of a row
PARTS = 1024  # programs of backward, each with partial gradients of weight and bias
PER_THREAD = 16  # elements


def obstacle(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> str | None:
    """Why the kernel cannot run."""
    if x.device.type != DEVICE:
        return f"the kernel needs a GPU, not {x.device.type}"
    problems = {
        "the kernel needs triton, which is not installed": find_spec("triton") is None,
        "autocast runs layer norm in float32": torch.is_autocast_enabled("cuda"),
        f"the kernel does not compute in {str(x.dtype).removeprefix('torch.')}": x.dtype not in DTYPES,
        "input and weight are of two dtypes": x.dtype != weight.dtype,
        f"a vector has more than {MAX_SIZE} elements": x.shape[-1] > MAX_SIZE,
        "there are no vectors": x.numel() == 0,
    }
    return next((problem for problem, here in problems.items() if here), None)


def run(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The reference's values and gradients."""
    return _Norm.apply(x, weight, bias, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):  # type: ignore[no-untyped-def]
        from elman.ops.layer_norm import fused

        flat = _rows(x)
        rows, size = flat.shape
        made = torch.empty_like(flat, memory_format=torch.contiguous_format)
        known = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        block, warps = _launch_sizes(size)
        with torch.cuda.device_of(x):
            fused.normalise[(rows,)](
                flat, weight, bias, made, known, flat.stride(0), rows, size, eps, BLOCK=block, num_warps=warps
            )
        ctx.save_for_backward(flat, weight, known)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return made.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, given):  # type: ignore[no-untyped-def]
        from elman.ops.layer_norm import fused

        flat, weight, known = ctx.saved_tensors
        slopes, (rows, size) = _rows(given), flat.shape
        made = torch.empty_like(slopes, memory_format=torch.contiguous_format)
        parts = min(PARTS, rows)
        sums = torch.empty(2, parts, size, dtype=torch.float32, device=flat.device)
        block, warps = _launch_sizes(size)
        strides = slopes.stride(0), flat.stride(0)
        with torch.cuda.device_of(flat):
            fused.differentiate[(parts,)](
                slopes, flat, weight, known, made, sums, *strides, rows, size, BLOCK=block, num_warps=warps
            )
        for_weight, for_bias = sums.sum(1)
        for_bias = None if ctx.bias_dtype is None else for_bias.to(ctx.bias_dtype)
        return made.view(given.shape), for_weight.to(weight.dtype), for_bias, None


def _rows(x: Tensor) -> Tensor:
    """x as a matrix of rows; copied only if the rows have no common stride."""
    return (x if x.stride(-1) == 1 else x.contiguous()).reshape(-1, x.shape[-1])


def _launch_sizes(size: int) -> tuple[int, int]:
    """The block size (a power of two) and the number of warps."""
    block = max(32, 1 << (size - 1).bit_length())
    return block, min(16, max(1, block // (32 * PER_THREAD)))
