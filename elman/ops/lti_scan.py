"""Scan of linear time-invariant (LTI) systems, one for each channel: h_t = A h_{t-1} + w u_t,  y_t = r · h_t.

    C steps per chunk, S size of the state, k[i] = r·Aⁱw the impulse response

    chunk of inputs u (C) ──┬── Toeplitz matrix of k (C x C) ────────────────┐
                            └── Σ A^(C-1-j) w u_j ──┐                        +──> outputs y (C)
    state before the chunk ──┬── A^C ───────────────+──> state after         │
                             └── r·A^(i+1), i = 0 … C-1 ─────────────────────┘

Only the state goes from chunk to chunk. So an initial state is free, the final state is a by-product, and powers of A
are needed for one chunk only, by repeated squaring. A convolution by FFT would need the impulse response of the whole
length, and the response to the initial state besides.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.forms import Form, Forms
from elman.ops.scan.chunked import last_state
from elman.shapes import Lengths, Sequence


class Diagonal(NamedTuple):
    """A is diagonal and complex; states are pairs of real and imaginary parts (..., channels, 2·size)."""

    factors: Tensor  # (channels, size), complex

    def apply(self, states: Tensor) -> Tensor:
        return _times(states, self.factors)

    def transposed(self, vectors: Tensor) -> Tensor:
        """Aᵀ @ vectors."""
        return _times(vectors, self.factors.conj())

    def squared(self) -> "Diagonal":
        return Diagonal(self.factors * self.factors)


class Dense(NamedTuple):
    """A is a real matrix; states are (..., channels, size)."""

    matrix: Tensor  # (channels, size, size)

    def apply(self, states: Tensor) -> Tensor:
        return torch.einsum("hst,...ht->...hs", self.matrix, states)

    def transposed(self, vectors: Tensor) -> Tensor:
        return torch.einsum("hst,...hs->...ht", self.matrix, vectors)

    def squared(self) -> "Dense":
        return Dense(self.matrix @ self.matrix)


def _times(pairs: Tensor, factors: Tensor) -> Tensor:
    states = torch.view_as_complex(pairs.contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(states * factors).flatten(-2)


class System(NamedTuple):
    """A discrete linear system for each channel."""

    transition: Diagonal | Dense
    write: Tensor  # w (channels, size): input to state
    read: Tensor  # r (channels, size): state to output


class _Chunk(NamedTuple):
    """The system over one chunk."""

    kernel: Tensor  # r·Aⁱw (steps, channels): the impulse response
    writes: Tensor  # A^(steps-1-i) w (steps, channels, size): each input to the state after the chunk
    reads: Tensor  # r·A^(i+1) (steps, channels, size): the state before the chunk to each output
    powers: list[Diagonal | Dense]  # A, A², A⁴, … A^steps


def invariant_scan(
    system: System, inputs: Sequence, initial: Tensor, lengths: Lengths | None, chunk: int
) -> tuple[Sequence, Tensor]:
    """Outputs (batch, time, channels), and the state (batch, channels, size) after each row's last real position.

    `chunk`, a power of two, changes speed and memory, not the result.
    """
    with torch.autocast(inputs.device.type, enabled=False):  # bfloat16 would lose small updates of the state
        time = inputs.shape[1]
        unrolled = _unroll(system, min(chunk, 1 << (time - 1).bit_length()))
        steps = len(unrolled.kernel)
        chunks = F.pad(inputs, (0, 0, 0, -time % steps)).unflatten(1, (-1, steps))
        states = [initial]
        for added in torch.einsum("bnch,chs->bnhs", chunks, unrolled.writes).unbind(1):
            states.append(unrolled.powers[-1].apply(states[-1]) + added)
        outputs = torch.einsum("bnhs,chs->bnch", torch.stack(states[:-1], 1), unrolled.reads)
        outputs = outputs + torch.einsum("bnjh,hij->bnih", chunks, _toeplitz(unrolled.kernel))
        outputs = outputs.flatten(1, 2)[:, :time]
        if lengths is None and time % steps == 0:
            return outputs, states[-1]
        if lengths is None:
            lengths = torch.full((len(inputs),), time)
        return outputs, _state_at(unrolled, inputs, torch.stack(states, 1), lengths.to(inputs.device))


def invariant_scan_reference(
    system: System, inputs: Sequence, initial: Tensor, lengths: Lengths | None, chunk: int = 1
) -> tuple[Sequence, Tensor]:
    """The definition, one step at a time."""
    state, states = initial, []
    for u in inputs.unbind(1):
        state = system.transition.apply(state) + system.write * u.unsqueeze(-1)
        states.append(state)
    history = torch.stack(states, 1)
    return (history * system.read).sum(-1), last_state(history, initial, lengths)


FORMS = Forms(
    "the time-invariant scan",
    {
        "chunked": Form(invariant_scan, "chunks as matrix products in torch"),
        "reference": Form(invariant_scan_reference, "the plain loop"),
    },
)


def _unroll(system: System, steps: int) -> _Chunk:
    transition, write, read = system
    writes, reads, powers = write.unsqueeze(0), transition.transposed(read).unsqueeze(0), [transition]
    while len(writes) < steps:  # doubles the number of powers
        writes = torch.cat([writes, powers[-1].apply(writes)])
        reads = torch.cat([reads, powers[-1].transposed(reads)])
        powers.append(powers[-1].squared())
    return _Chunk((writes * read).sum(-1), writes.flip(0), reads, powers)


def _toeplitz(kernel: Tensor) -> Tensor:
    """The convolution with a kernel (steps, channels) as lower-triangular matrices (channels, output, input)."""
    steps = torch.arange(len(kernel), device=kernel.device)
    lag = steps.unsqueeze(1) - steps
    return torch.where(lag >= 0, kernel.t()[:, lag.clamp(min=0)], 0)


def _state_at(unrolled: _Chunk, inputs: Sequence, states: Tensor, lengths: Lengths) -> Tensor:
    """The state after `lengths` steps, inside a chunk: A^rest (by the bits of rest) @ state, plus the inputs."""
    steps, rows = len(unrolled.kernel), torch.arange(len(inputs), device=inputs.device)
    rest = lengths % steps
    state = states[rows, lengths // steps]
    for bit, power in enumerate(unrolled.powers[:-1]):
        state = torch.where((rest >> bit & 1).bool().view(-1, 1, 1), power.apply(state), state)
    positions = torch.arange(-steps, 0, device=inputs.device) + lengths.unsqueeze(1)
    recent = inputs[rows.unsqueeze(1), positions.clamp(min=0)]
    recent = torch.where((positions >= (lengths - rest).unsqueeze(1)).unsqueeze(-1), recent, 0)
    return state + torch.einsum("bch,chs->bhs", recent, unrolled.writes)
