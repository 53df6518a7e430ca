"""Fused output layer and cross-entropy: the logits of all positions are never in memory at once.

With a large vocabulary this layer takes most of a training step. Positions are processed in chunks, and gradients are
computed while a chunk's logits are still in cache, which saves memory and time.
"""

import math
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elman.ops.scan.chunked import common_dtype

CPU_LOGITS = 7_000_000  # elements per chunk: few enough for the cache, enough rows for the GEMM
GPU_LOGITS = 2**28  # half a gigabyte in half precision
ALIGNED = {"cuda": 64}  # the vocabulary is padded to a multiple of
MIN_PADDED = 1024  # rows from which a padded copy of the weights pays off


def cross_entropy_reference(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """The definition: sum over positions of -log softmax(features · weightᵀ + bias)[target]."""
    logits = F.linear(features, weight, bias)
    return F.cross_entropy(logits.to(common_dtype(logits)), targets, reduction="sum")


def cross_entropy_sum(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """The reference's value and gradients, in chunks; `features` (positions, width), `targets` (positions,)."""
    return _ChunkedCrossEntropy.apply(features, weight, bias, targets)


@torch.no_grad()
def cross_entropy_each(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Cross-entropy of every position in nats, in float32, without gradients."""
    nats = torch.empty(len(targets), dtype=common_dtype(features), device=features.device)
    if len(features) >= MIN_PADDED:
        weight, bias = _aligned(weight, bias, weight.dtype)
    for rows in _chunks(features, weight):
        scores = F.linear(features[rows], weight, bias).to(nats.dtype)
        nats[rows] = F.cross_entropy(scores, targets[rows], reduction="none")
    return nats


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, targets):  # type: ignore[no-untyped-def]
        device = features.device.type
        half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
        wide = common_dtype(features)
        with torch.autocast(device, enabled=False):
            narrow_weight, narrow_bias = _aligned(weight, bias, half)
            total = torch.zeros((), dtype=wide, device=features.device)
            for_features, for_weight = torch.empty_like(features), None
            for_bias = None if bias is None else torch.zeros_like(bias)
            chunks = _chunks(features, weight)
            size = chunks[0].stop if chunks else 0
            logits = features.new_empty(size, len(narrow_weight), dtype=half)  # reused by all chunks
            in_place = _has_kernel(logits)
            errors = logits if in_place else features.new_empty(logits.shape, dtype=wide)
            ones = features.new_ones(size, dtype=wide)
            for rows in chunks:
                inputs = features[rows].to(half)
                scores = logits[: len(inputs)]
                if narrow_bias is None:
                    torch.mm(inputs, narrow_weight.t(), out=scores)
                else:
                    torch.addmm(narrow_bias, inputs, narrow_weight.t(), out=scores)
                wrong = errors[: len(inputs)]
                total += (_errors_in_place if in_place else _errors)(scores, targets[rows], wrong)
                if for_bias is not None:
                    share = wrong.sum(0, dtype=wide) if in_place else wrong.t() @ ones[: len(inputs)]
                    for_bias += share[: len(bias)].to(for_bias.dtype)
                wrong = wrong.to(half)
                for_features[rows] = (wrong @ narrow_weight).to(for_features.dtype)
                for_weight = _summed(for_weight, wrong.t(), inputs, weight.dtype)
            for_weight = torch.zeros_like(weight) if for_weight is None else for_weight[: len(weight)]
        ctx.gradients = for_features, for_weight, for_bias
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the chunked cross-entropy supports one backward pass, which frees its gradients")
        return *(None if gradient is None else gradient.mul_(scale) for gradient in gradients), None


def _has_kernel(logits: Tensor) -> bool:
    return logits.device.type == "cuda" and logits.dtype != torch.float64 and find_spec("triton") is not None


def _errors_in_place(scores: Tensor, targets: Tensor, wrong: Tensor) -> Tensor:
    from elman.ops.softmax_gradient_kernel import softmax_errors

    return softmax_errors(scores, targets).sum()


def _errors(scores: Tensor, targets: Tensor, wrong: Tensor) -> Tensor:
    """The summed cross-entropy in nats; `wrong` is set to the gradient of the logits, softmax - one_hot."""
    indices = targets.unsqueeze(1)
    log_probs = torch.log_softmax(scores, -1, dtype=wrong.dtype, out=wrong)
    nats = -log_probs.gather(1, indices).sum()
    log_probs.exp_().scatter_add_(1, indices, log_probs.new_full(indices.shape, -1.0))
    return nats


def _summed(total: Tensor | None, left: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """total + left @ right, in this dtype, in place if there is a total."""
    if left.dtype == kind:
        return left @ right if total is None else torch.addmm(total, left, right, out=total)
    # tensor cores accumulate in float32 anyway
    wide = left.device.type == "cuda" and kind == torch.float32
    product = torch.mm(left, right, out_dtype=kind) if wide else left @ right
    return product.to(kind) if total is None else total.add_(product)


def _aligned(weight: Tensor, bias: Tensor | None, kind: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Pads the vocabulary with tokens of logit -inf: tensor cores need aligned rows."""
    vocab = len(weight)
    missing = -vocab % ALIGNED.get(weight.device.type, 1)
    if not missing:
        return weight.to(kind), None if bias is None else bias.to(kind)
    wide = weight.new_empty(vocab + missing, weight.shape[1], dtype=kind)
    wide[:vocab], wide[vocab:] = weight, 0.0
    long = wide.new_full((len(wide),), -torch.inf)
    long[:vocab] = 0.0 if bias is None else bias
    return wide, long


def _chunks(features: Tensor, weight: Tensor) -> list[slice]:
    """Chunks of equal size: a small remainder would cost a GEMM as much as a full chunk."""
    logits = CPU_LOGITS if features.device.type == "cpu" else GPU_LOGITS
    parts = math.ceil(len(features) * len(weight) / logits)
    size = math.ceil(len(features) / max(1, min(parts, len(features))))
    return [slice(start, min(start + size, len(features))) for start in range(0, len(features), max(1, size))]
