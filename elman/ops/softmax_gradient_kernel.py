"""What a softmax got wrong, in Triton: from scores to their gradient in place, with two looks at each number."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 2048, 8
LEAST = tl.constexpr(-3.0e38)  # below all scores but -inf, from which nothing can be subtracted


def softmax_errors(scores: Tensor, targets: Tensor) -> Tensor:
    """Nats of each row's target (rows,), in float32; `scores` (rows, words) become softmax(scores) - one(target)."""
    rows, words = scores.shape
    nats = torch.empty(rows, dtype=torch.float32, device=scores.device)
    assert scores.stride(1) == 1
    if rows:
        with torch.cuda.device_of(scores):
            errors[(rows,)](scores, targets.contiguous(), nats, words, scores.stride(0), BLOCK=BLOCK, num_warps=WARPS)
    return nats


@triton.jit
def errors(scores, targets, nats, words, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row: the sum of powers, each lane with a largest score of its own, then the probabilities."""
    row = tl.program_id(0).to(tl.int64)
    own = scores + row * stride
    target = tl.load(targets + row)
    lane = tl.arange(0, BLOCK)
    largest, powers = tl.full((BLOCK,), LEAST, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, words, BLOCK):
        x = tl.load(own + start + lane, mask=start + lane < words, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, x)
        powers = powers * tl.exp(largest - larger) + tl.exp(x - larger)
        largest = larger
    top = tl.max(largest, 0)
    total = top + tl.log(tl.sum(powers * tl.exp(largest - top), 0))
    tl.store(nats + row, total - tl.load(own + target).to(tl.float32))
    tl.debug_barrier()  # all have read the target's score before one of them changes it
    for start in range(0, words, BLOCK):
        here = start + lane
        x = tl.load(own + here, mask=here < words, other=-float("inf")).to(tl.float32)
        wrong = tl.exp(x - total) - tl.where(here == target, 1.0, 0.0)
        tl.store(own + here, wrong.to(own.dtype.element_ty), mask=here < words)
