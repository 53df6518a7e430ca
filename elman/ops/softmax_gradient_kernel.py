"""Triton kernel of softmax cross-entropy: replaces logits by their gradient, in two passes over each row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 2048, 8
LEAST = tl.constexpr(-3.0e38)  # initial maximum; -inf - -inf would be NaN


def softmax_errors(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy (rows,) in nats, in float32; `scores` (rows, vocab) become softmax(scores) - one_hot(target)."""
    rows, vocab = scores.shape
    nats = torch.empty(rows, dtype=torch.float32, device=scores.device)
    assert scores.stride(1) == 1
    if rows:
        with torch.cuda.device_of(scores):
            errors[(rows,)](scores, targets.contiguous(), nats, vocab, scores.stride(0), BLOCK=BLOCK, num_warps=WARPS)
    return nats


@triton.jit
def errors(scores, targets, nats, vocab, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row: online softmax with a running maximum per lane, then the probabilities."""
    row = tl.program_id(0).to(tl.int64)
    own = scores + row * stride
    target = tl.load(targets + row)
    lane = tl.arange(0, BLOCK)
    largest, sums = tl.full((BLOCK,), LEAST, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(own + start + lane, mask=start + lane < vocab, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, x)
        sums = sums * tl.exp(largest - larger) + tl.exp(x - larger)
        largest = larger
    top = tl.max(largest, 0)
    total = top + tl.log(tl.sum(sums * tl.exp(largest - top), 0))
    tl.store(nats + row, total - tl.load(own + target).to(tl.float32))
    tl.debug_barrier()  # all lanes have read the target's logit before it is overwritten
    for start in range(0, vocab, BLOCK):
        here = start + lane
        x = tl.load(own + here, mask=here < vocab, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(x - total) - tl.where(here == target, 1.0, 0.0)
        tl.store(own + here, gradient.to(own.dtype.element_ty), mask=here < vocab)
