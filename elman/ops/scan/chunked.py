"""The linear recurrence in torch: its definition, and with chunks of time in parallel (a three-phase scan).

A chunk maps a state h to keep · h + added. Phase 1 computes (keep, added) of all chunks in parallel, step by step;
phase 2 goes from chunk to chunk and computes the state before each; phase 3 computes all states of all chunks in
parallel. Nothing is divided, so decays near 0 and 1 are both safe. The gradient is the same scan in reverse.
"""

from functools import reduce
from math import isqrt

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.shapes import Lengths

CPU_STEPS = 65  # steps per chunk; odd, since chunks a power of two apart share cache sets
CPU_ELEMENTS = 2**14  # per operation: enough to hide its call overhead, few enough for the cache
CPU_MIN_CHUNKS = 4  # in parallel; below, computing everything twice costs more than it saves


def reference(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """The definition, a loop over time: slow, and the judge of every faster form."""
    decay, inputs, initial = promote(decay, inputs, initial)
    state, history = initial, []
    steps = list(zip(decay.unbind(1), inputs.unbind(1), strict=True))
    for keep, new in reversed(steps) if reverse else steps:
        state = keep * state + new
        history.append(state)
    states = torch.stack(history[::-1] if reverse else history, dim=1) if history else inputs
    return states, last_state(states, initial, lengths, reverse)


def last_state(history: Tensor, initial: Tensor, lengths: Lengths | None, reverse: bool = False) -> Tensor:
    """The state after each row's last real position; in reverse, that at its first position."""
    if history.shape[1] == 0:
        return initial
    if lengths is None or reverse:
        return history[:, 0 if reverse else -1].clone()  # a view would keep the history in memory
    lengths = lengths.to(history.device)
    rows = torch.arange(len(history), device=history.device)
    last = history[rows, (lengths - 1).clamp(min=0)]
    return torch.where((lengths > 0).view(-1, *[1] * (last.dim() - 1)), last, initial)


def promote(decay: Tensor, inputs: Tensor, initial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All in one dtype, float32 at least: bfloat16 would lose small updates of a large state."""
    dtype = common_dtype(decay, inputs, initial)
    return decay.to(dtype).expand(inputs.shape), inputs.to(dtype), initial.to(dtype)


def common_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype of the computation: float32 at least."""
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)


def run(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """The reference's values and gradients; time and memory are linear in the length."""
    decay, inputs, initial = promote(decay, inputs, initial)
    if reverse:
        history = _ChunkedScan.apply(decay.flip(1), inputs.flip(1), initial).flip(1)
    else:
        history = _ChunkedScan.apply(decay, inputs, initial)
    return history, last_state(history, initial, lengths, reverse)


class _ChunkedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, decay, inputs, initial):  # type: ignore[no-untyped-def]
        history = torch.empty(inputs.shape, dtype=inputs.dtype, device=inputs.device)
        state, kept = initial, []
        for piece, chunks in _pieces(inputs):
            state, share = _walk(decay[:, piece], inputs[:, piece], history[:, piece], state, chunks)
            kept.append(share)
        ctx.save_for_backward(decay, history, initial, *kept)
        return history

    @staticmethod
    @once_differentiable
    def backward(ctx, for_history):  # type: ignore[no-untyped-def]
        decay, history, initial, *kept = ctx.saved_tensors
        for_inputs = torch.empty_like(history)
        for_decay = torch.empty_like(history) if ctx.needs_input_grad[0] else None
        future = torch.zeros_like(initial)
        for (piece, _), share in zip(reversed(_pieces(history)), reversed(kept), strict=True):
            walked = decay[:, piece], for_history[:, piece], for_inputs[:, piece]
            future = _walk_back(*walked, future, share)
            if for_decay is not None:
                before = slice(max(0, piece.start - 1), piece.stop - 1)
                rest = slice(before.start + 1, piece.stop)
                torch.mul(for_inputs[:, rest], history[:, before].conj(), out=for_decay[:, rest])
        if for_decay is not None:
            for_decay[:, :1] = for_inputs[:, :1] * initial.unsqueeze(1).conj()
        return for_decay, for_inputs, future


def _pieces(like: Tensor) -> list[tuple[slice, int]]:
    """Pieces of time and the number of chunks in each; the chunks of a piece have equal length."""
    time, elements = like.shape[1], max(1, like[:, :1].numel())
    if like.device.type == "cpu":
        chunks = CPU_ELEMENTS // elements
        steps = CPU_STEPS if chunks >= CPU_MIN_CHUNKS else time
    else:
        steps = isqrt(time)
        chunks = time
    pieces, start = [], 0
    while start < time:
        count = max(1, min(chunks, (time - start) // max(1, steps)))
        stop = min(time, start + count * steps)
        pieces.append((slice(start, stop), count))
        start = stop
    return pieces


def _walk(decay: Tensor, inputs: Tensor, history: Tensor, state: Tensor, chunks: int) -> tuple[Tensor, Tensor | None]:
    """Fills `history` from `state` on; returns the last state, and the product of decays of each chunk."""
    keeps, news, states = (_side_by_side(whole, chunks) for whole in (decay, inputs, history))
    past, kept = state.unsqueeze(1), None
    if chunks > 1:
        kept, added = keeps[0].clone(), news[0].clone()
        for keep, new in zip(keeps[1:], news[1:], strict=True):
            torch.addcmul(new, keep, added, out=added)
            kept.mul_(keep)
        past = _starts(kept.unbind(1), added.unbind(1), state)
    for keep, new, here in zip(keeps, news, states, strict=True):
        torch.addcmul(new, keep, past, out=here)
        past = here
    return past[:, -1], kept


def _walk_back(decay: Tensor, given: Tensor, gradients: Tensor, future: Tensor, kept: Tensor | None) -> Tensor:
    """Fills `gradients` (of the inputs) from that of the next step's state, `future`; returns that of `state`."""
    chunks = 1 if kept is None else kept.shape[1]
    keeps, givens, totals = (_side_by_side(whole, chunks)[::-1] for whole in (decay.conj(), given, gradients))
    later = future.unsqueeze(1)
    if kept is not None:
        total = givens[0].clone()
        for keep, new in zip(keeps, givens[1:], strict=False):
            torch.addcmul(new, keep, total, out=total)
        later = _starts(kept.conj().unbind(1)[::-1], (keeps[-1] * total).unbind(1)[::-1], future).flip(1)
    torch.add(givens[0], later, out=totals[0])
    for keep, new, after, here in zip(keeps, givens[1:], totals, totals[1:], strict=False):
        torch.addcmul(new, keep, after, out=here)
    return (keeps[-1] * totals[-1])[:, 0]


def _starts(kept: tuple[Tensor, ...], added: tuple[Tensor, ...], state: Tensor) -> Tensor:
    """The state at which each chunk begins, walking from chunk to chunk."""
    starts = [state]
    for keep, new in zip(kept[:-1], added[:-1], strict=True):
        starts.append(torch.addcmul(new, keep, starts[-1]))
    return torch.stack(starts, dim=1)


def _side_by_side(whole: Tensor, chunks: int) -> tuple[Tensor, ...]:
    """The first steps of all chunks (batch, chunks, ...), the second steps, and so on."""
    return whole.unflatten(1, (chunks, -1)).unbind(2)
