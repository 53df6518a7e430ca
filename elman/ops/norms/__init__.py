"""Layer norm (Ba et al., 2016): y = (x - mean(x)) / sqrt(variance(x) + eps) · weight + bias; and RMS norm.

The Triton kernel of layer norm takes one pass forward and one backward. Libraries take two or three passes backward,
and copy gradients with strided rows, such as those of a recurrence's drive.
"""

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elman.ops.forms import Form, Forms, first_problem

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
    return first_problem(problems)


def layer_norm_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The kernels of `layer_norm_kernels.py`: the reference's values and gradients."""
    return _Norm.apply(x, weight, bias, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):  # type: ignore[no-untyped-def]
        from elman.ops.norms import layer_norm_kernels

        flat = _rows(x)
        rows, size = flat.shape
        made = torch.empty_like(flat, memory_format=torch.contiguous_format)
        known = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        block, warps = _launch_sizes(size)
        with torch.cuda.device_of(x):
            layer_norm_kernels.normalise[(rows,)](
                flat, weight, bias, made, known, flat.stride(0), rows, size, eps, BLOCK=block, num_warps=warps
            )
        ctx.save_for_backward(flat, weight, known)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return made.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, given):  # type: ignore[no-untyped-def]
        from elman.ops.norms import layer_norm_kernels

        flat, weight, known = ctx.saved_tensors
        slopes, (rows, size) = _rows(given), flat.shape
        made = torch.empty_like(slopes, memory_format=torch.contiguous_format)
        parts = min(PARTS, rows)
        sums = torch.empty(2, parts, size, dtype=torch.float32, device=flat.device)
        block, warps = _launch_sizes(size)
        strides = slopes.stride(0), flat.stride(0)
        with torch.cuda.device_of(flat):
            layer_norm_kernels.differentiate[(parts,)](
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


FORMS = Forms(
    "layer norm",
    {
        "kernel": Form(layer_norm_kernel, "Triton, one program per vector", obstacle, device="cuda"),
        "reference": Form(lambda x, weight, *rest: F.layer_norm(x, weight.shape, weight, *rest), "torch's layer norm"),
    },
)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Over the last axis, with statistics in float32 at least."""
    args = x, weight, bias, eps
    return FORMS[FORMS.taken(*args)].run(*args)


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm by the fastest form. Double backward is not supported."""

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.weight, torch.Tensor)
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Rescales each vector to a root mean square of 1: layer norm without mean and bias (Zhang & Sennrich, 2019).

    y = x / sqrt(mean(x²) + eps) · weight

    Under autocast the result is float32, like that of layer norm.
    """

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, self.weight.dtype)
        return F.rms_norm(x.to(dtype), self.weight.shape, self.weight, self.eps)
