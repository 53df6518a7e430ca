"""Time-invariant linear systems, one for each channel: h_t = A h_{t-1} + w u_t, y_t = r · h_t, in chunks.

Inside a chunk the outputs are a short convolution of the inputs with the kernel r·Aᵏw, written as one triangular
matrix product, plus what the state at the chunk's start still says. From chunk to chunk only the state is carried.
So a carried state costs nothing extra, the final state is there anyway, and Aᵏ is needed for one chunk only: it comes
from repeated squaring. A convolution of the whole length by FFT would need the kernel of the whole length, and the
initial state's response beside it.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.forms import Form, Forms, never
from elman.ops.scan import unwatched
from elman.ops.scan.reference import last_state
from elman.shapes import Lengths, Sequence


class Diagonal(NamedTuple):
    """A multiplies complex numbers; states are their pairs of real numbers side by side (..., channels, 2·numbers)."""

    factors: Tensor  # (channels, numbers), complex

    def forward(self, states: Tensor) -> Tensor:
        return _times(states, self.factors)

    def back(self, readings: Tensor) -> Tensor:
        """The transpose, for vectors that read states."""
        return _times(readings, self.factors.conj())

    def twice(self) -> "Diagonal":
        return Diagonal(self.factors * self.factors)


class Dense(NamedTuple):
    """A is a real matrix; states are (..., channels, size)."""

    matrix: Tensor  # (channels, size, size)

    def forward(self, states: Tensor) -> Tensor:
        return torch.einsum("hst,...ht->...hs", self.matrix, states)

    def back(self, readings: Tensor) -> Tensor:
        return torch.einsum("hst,...hs->...ht", self.matrix, readings)

    def twice(self) -> "Dense":
        return Dense(self.matrix @ self.matrix)


def _times(pairs: Tensor, factors: Tensor) -> Tensor:
    numbers = torch.view_as_complex(pairs.contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(numbers * factors).flatten(-2)


class System(NamedTuple):
    """One discrete linear system for each channel."""

    transition: Diagonal | Dense
    write: Tensor  # (channels, size): how an input enters the state
    read: Tensor  # (channels, size): how the output is read from the state


class _Chunk(NamedTuple):
    """What a system does within a chunk; `powers` are A, A², A⁴, … up to the whole chunk's."""

    kernel: Tensor  # (steps, channels)
    writes: Tensor  # (steps, channels, size): how each input enters the state at the end of the chunk
    reads: Tensor  # (steps, channels, size): how each output is read from the state before the chunk
    powers: list[Diagonal | Dense]


def invariant_scan(
    system: System, inputs: Sequence, initial: Tensor, lengths: Lengths | None, chunk: int
) -> tuple[Sequence, Tensor]:
    """Outputs (batch, time, channels), and the state (batch, channels, size) after each row's last real position.

    `chunk`, a power of two, changes speed and memory, not the result.
    """
    with torch.autocast(inputs.device.type, enabled=False):  # a state in bfloat16 would lose small updates
        time = inputs.shape[1]
        part = _unroll(system, min(chunk, 1 << (time - 1).bit_length()))
        steps = len(part.kernel)
        pieces = F.pad(inputs, (0, 0, 0, -time % steps)).unflatten(1, (-1, steps))
        states = [initial]
        for added in torch.einsum("bnch,chs->bnhs", pieces, part.writes).unbind(1):
            states.append(part.powers[-1].forward(states[-1]) + added)
        outputs = torch.einsum("bnhs,chs->bnch", torch.stack(states[:-1], 1), part.reads)
        outputs = outputs + torch.einsum("bnjh,hij->bnih", pieces, _triangular(part.kernel))
        outputs = outputs.flatten(1, 2)[:, :time]
        if lengths is None and time % steps == 0:
            return outputs, states[-1]
        if lengths is None:
            lengths = torch.full((len(inputs),), time)
        return outputs, _inside(part, inputs, torch.stack(states, 1), lengths.to(inputs.device))


def invariant_scan_reference(
    system: System, inputs: Sequence, initial: Tensor, lengths: Lengths | None, chunk: int = 1
) -> tuple[Sequence, Tensor]:
    """The definition, one step after another."""
    state, states = initial, []
    for u in inputs.unbind(1):
        state = system.transition.forward(state) + system.write * u.unsqueeze(-1)
        states.append(state)
    history = torch.stack(states, 1)
    return (history * system.read).sum(-1), last_state(history, initial, lengths)


FORMS = Forms(
    "the time-invariant scan",
    {
        "chunked": Form(invariant_scan, unwatched, never, lambda x: "chunks as matrix products in torch"),
        "reference": Form(invariant_scan_reference, never, never, lambda x: "the plain loop"),
    },
)


def _unroll(system: System, steps: int) -> _Chunk:
    transition, write, read = system
    entered, seen, powers = write.unsqueeze(0), transition.back(read).unsqueeze(0), [transition]
    while len(entered) < steps:
        entered = torch.cat([entered, powers[-1].forward(entered)])
        seen = torch.cat([seen, powers[-1].back(seen)])
        powers.append(powers[-1].twice())
    return _Chunk((entered * read).sum(-1), entered.flip(0), seen, powers)


def _triangular(kernel: Tensor) -> Tensor:
    """The convolution with a kernel (steps, channels) as matrices (channels, output step, input step)."""
    steps = torch.arange(len(kernel), device=kernel.device)
    ago = steps.unsqueeze(1) - steps
    return torch.where(ago >= 0, kernel.t()[:, ago.clamp(min=0)], 0)


def _inside(part: _Chunk, inputs: Sequence, states: Tensor, lengths: Lengths) -> Tensor:
    """The state after `lengths` steps, somewhere inside a chunk: its start, moved on bit by bit, and its inputs."""
    steps, rows = len(part.kernel), torch.arange(len(inputs), device=inputs.device)
    rest = lengths % steps
    state = states[rows, lengths // steps]
    for bit, power in enumerate(part.powers[:-1]):
        state = torch.where((rest >> bit & 1).bool().view(-1, 1, 1), power.forward(state), state)
    places = torch.arange(-steps, 0, device=inputs.device) + lengths.unsqueeze(1)
    recent = inputs[rows.unsqueeze(1), places.clamp(min=0)]
    recent = torch.where((places >= (lengths - rest).unsqueeze(1)).unsqueeze(-1), recent, 0)
    return state + torch.einsum("bch,chs->bhs", recent, part.writes)
