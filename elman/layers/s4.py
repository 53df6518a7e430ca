"""Structured state spaces (S4, S4D): linear systems of damped oscillators in each channel.

    h' = A h + B u,   y = C h + D u      in continuous time, sampled with a learned step size Δ

| word | symbol |
|---|---|
| delta | Δ |
| rate, frequency | −Re λ, Im λ: decay rate and frequency, λ an eigenvalue of A (of its diagonal part) |
| low_rank | P, in A = Λ − P P* |
| write, read, skip | B, C, D |

Eigenvalues come in conjugate pairs; one of each is stored, and twice the real part stands for both. Parameters and
states are real: complex numbers are stored as pairs.
"""

import math
from abc import abstractmethod
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.layers.base import LAYERS, ReadyStep, ScanLayer, at_least_float32
from elman.ops.lti_scan import FORMS, Dense, Diagonal, System, invariant_scan
from elman.ops.taps import listening, tap
from elman.recurrence import reference
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step


class StateSpace(ScanLayer):
    """Common part of S4 and S4D: step sizes, input, output and both forms; subclasses define the state transition."""

    sites: ClassVar = {
        "delta": "step size of each channel (Δ)",
        "state": "oscillators of each channel, as pairs of real and imaginary part (h)",
        "response": "output of the state space, with the skip connection (y)",
        "output": "after activation and channel mixing",
    }

    no_decay: ClassVar = ("log_rate", "frequency", "low_rank", "write")
    forms = FORMS

    class Config(ScanLayer.Config):
        hidden_size: int = Field(0, ge=0)
        """Number of channels; 0: the model's hidden_size."""
        state_size: int = Field(64, ge=2, multiple_of=2)
        """State size N per channel: N/2 conjugate pairs."""
        min_delta: float = Field(0.001, gt=0)
        """Smallest initial step size: 1/Δ is about the number of steps that a channel remembers."""
        max_delta: float = Field(0.1, gt=0)
        """Largest initial step size."""
        mixing: Literal["glu", "linear", "none"] = "glu"
        """Mixing of channels after the state space: gated linear unit, linear, or none."""
        chunk_size: int = Field(64, ge=1)
        """Chunk size of the convolution, a power of two: affects speed and memory, not the result."""

        @field_validator("chunk_size")
        @classmethod
        def _power_of_two(cls, size: int) -> int:
            if size & (size - 1):
                raise ValueError(f"chunk_size must be a power of two, like {1 << size.bit_length() - 1}")
            return size

    def __init__(self, config: "StateSpace.Config", input_size: int):
        super().__init__(config, input_size)
        size = self.output_size
        self.pairs = config.state_size // 2
        self.enter = nn.Identity() if input_size == size else nn.Linear(input_size, size)
        low, high = math.log(config.min_delta), math.log(config.max_delta)
        self.log_delta = nn.Parameter(torch.empty(size).uniform_(min(low, high), max(low, high)))
        self.read = nn.Parameter(torch.randn(size, self.pairs, 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.ones(size))
        self.mix = {"glu": nn.Linear(size, 2 * size), "linear": nn.Linear(size, size)}.get(config.mixing)

    @abstractmethod
    def discretise(self, delta: Tensor) -> tuple[Tensor, ...]:
        """Discretization for step sizes (..., channels): complex tensors (..., channels, pairs)."""

    @abstractmethod
    def move(self, sampled: tuple[Tensor, ...], state: Tensor, u: Tensor) -> Tensor:
        """The complex state (..., channels, pairs) after an input (..., channels)."""

    @abstractmethod
    def system(self) -> System:
        """The discrete system as matrices, for the convolutional form."""

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.output_size, self.pairs, 2)

    def parallel(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        u = at_least_float32(self.enter(x))
        y, final = invariant_scan(self.system(), u, state.flatten(-2), lengths, self.config.chunk_size)
        return self._leave(x, u, y), final.unflatten(-1, (-1, 2))

    def advance(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        u = at_least_float32(self.enter(x))
        y, state = self.oscillate(u, state)
        return self._leave(x, u, y), state

    def walk(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        u = at_least_float32(self.enter(x))
        step_size = at_least_float32(self.log_delta).exp()
        step = partial(self.oscillate, step_size=step_size, sampled=self.discretise(step_size))
        y, state = reference.run(ReadyStep(step), u, state, lengths)
        return self._leave(x, u, y), state

    def oscillate(
        self, u: Tensor, state: Tensor, step_size: Tensor | None = None, sampled: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step of the state space: output and new state; step sizes and discretization can be precomputed."""
        step_size = at_least_float32(self.log_delta).exp() if step_size is None else step_size
        shown = tap("delta", step_size.expand(len(u), -1))
        if listening() and shown.data_ptr() != step_size.data_ptr():  # edited through a tap
            sampled = self.discretise(shown)
        moved = self.move(sampled or self.discretise(step_size), torch.view_as_complex(state), u)
        state = tap("state", torch.view_as_real(moved))
        return 2 * (torch.view_as_complex(state) * self._complex(self.read)).real.sum(-1), state

    def _leave(self, x: Tensor, u: Tensor, y: Tensor) -> Tensor:
        y = tap("response", y + self.skip * u).to(x.dtype)
        if self.mix is None:
            return tap("output", F.gelu(y))
        mixed = self.mix(F.gelu(y))
        return tap("output", F.glu(mixed) if self.config.mixing == "glu" else mixed)

    @staticmethod
    def _complex(pairs: Tensor) -> Tensor:
        return torch.view_as_complex(at_least_float32(pairs))

    def _ready(self, transition: Diagonal | Dense, write: Tensor) -> System:
        # twice the real part of a product equals a real product of pairs, one of them conjugated
        read = torch.view_as_real(2 * self._complex(self.read).conj().resolve_conj())
        return System(transition, torch.view_as_real(write).flatten(-2), read.flatten(-2))


@LAYERS.register("s4d")
class S4D(StateSpace):
    """Diagonal state space (Gu et al., 2022): damped oscillators in each channel, trained as a convolution."""

    traits: ClassVar = Traits(
        idea="oscillators with different time scales; a whole sequence is a convolution",
        limitation="decays do not depend on the input, so it cannot select what to keep",
        training="3·width·(2·width + chunk_size + 2·state_size + 5·chunk_size·state_size/length); chunks at once",
        stepping="2·width·(width + 4·state_size); 2·width² is the mixing",
        state="width·state_size",
    )

    class Config(StateSpace.Config):
        start: Literal["lin", "inv", "legs"] = "legs"
        """Initial frequencies: linear, inverse, or HiPPO-LegS without its low-rank part."""
        discretisation: Literal["zoh", "bilinear"] = "zoh"
        """Discretization: zero-order hold (zoh) or bilinear (trapezoidal)."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.zero_order_hold = config.discretisation == "zoh"
        size, pairs = self.output_size, self.pairs
        frequencies = starting_frequencies(config.start, config.state_size)
        self.log_rate = nn.Parameter(torch.full((size, pairs), math.log(0.5)))
        self.frequency = nn.Parameter(frequencies.to(self.log_rate.dtype).repeat(size, 1))

    def discretise(self, delta: Tensor) -> tuple[Tensor, ...]:
        rate = torch.complex(-at_least_float32(self.log_rate).exp(), at_least_float32(self.frequency))
        delta = delta.unsqueeze(-1)
        if self.zero_order_hold:
            decay = torch.polar((rate.real * delta).exp(), rate.imag * delta)
            return decay, (decay - 1) / rate
        half = rate * delta / 2
        return (1 + half) / (1 - half), delta / (1 - half)

    def move(self, sampled: tuple[Tensor, ...], state: Tensor, u: Tensor) -> Tensor:
        decay, write = sampled
        return decay * state + write * u.unsqueeze(-1)

    def system(self) -> System:
        decay, write = self.discretise(at_least_float32(self.log_delta).exp())
        return self._ready(Diagonal(decay), write)


@LAYERS.register("s4")
class S4(StateSpace):
    """Structured state space (Gu et al., 2021): HiPPO memory, diagonal plus low rank."""

    traits: ClassVar = Traits(
        idea="initialized as the optimal polynomial memory of the whole past (HiPPO)",
        limitation="decays do not depend on the input; costs more than S4D and seldom gains much",
        training="3·width·(2·width + chunk_size + 2·state_size + state_size²/chunk_size"
        " + (2·chunk_size·state_size² + log2(chunk_size)·state_size³)/length); chunks at once",
        stepping="2·width·(width + 12·state_size); 2·width² is the mixing",
        state="width·state_size",
    )

    def __init__(self, config: StateSpace.Config, input_size: int):
        super().__init__(config, input_size)
        legs = hippo(config.state_size)
        shape = (self.output_size, 1, 1)
        dtype = self.log_delta.dtype
        self.log_rate = nn.Parameter(torch.full((self.output_size, self.pairs), math.log(0.5)))
        self.frequency = nn.Parameter(legs.frequency.to(dtype).repeat(*shape[:2]))
        self.low_rank = nn.Parameter(torch.view_as_real(legs.low_rank).to(dtype).repeat(*shape))
        self.write = nn.Parameter(torch.view_as_real(legs.write).to(dtype).repeat(*shape))

    def discretise(self, delta: Tensor) -> tuple[Tensor, ...]:
        """Bilinear (2/Δ − A)⁻¹ (2/Δ + A), inverted with the Woodbury identity."""
        rate = torch.complex(-at_least_float32(self.log_rate).exp(), at_least_float32(self.frequency))
        twice = (2 / delta).unsqueeze(-1)
        inverse, low_rank = 1 / (twice - rate), self._complex(self.low_rank)
        return twice + rate, inverse, inverse * low_rank / (1 + _dot(low_rank, inverse * low_rank))

    def move(self, sampled: tuple[Tensor, ...], state: Tensor, u: Tensor) -> Tensor:
        ahead, inverse, correction = sampled
        low_rank = self._complex(self.low_rank)
        pushed = ahead * state - low_rank * _dot(low_rank, state) + 2 * self._complex(self.write) * u.unsqueeze(-1)
        return inverse * pushed - correction * _dot(low_rank, inverse * pushed)

    def system(self) -> System:
        """Applies one step to each unit vector: the results are the columns of the transition matrix."""
        size, sampled = 2 * self.pairs, self.discretise(at_least_float32(self.log_delta).exp())
        units = torch.eye(size, dtype=sampled[0].real.dtype, device=sampled[0].device)
        units = torch.view_as_complex(units.view(size, 1, self.pairs, 2))
        no_input = units.real.new_zeros(self.output_size)
        columns = torch.view_as_real(self.move(sampled, units, no_input)).flatten(-2)
        write = self.move(sampled, torch.zeros_like(units[0]), no_input + 1)
        return self._ready(Dense(columns.permute(1, 2, 0)), write)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """a* b over all conjugate pairs: real."""
    return 2 * (a.conj() * b).real.sum(-1, keepdim=True)


class Hippo(NamedTuple):
    """HiPPO-LegS (memory of the past in Legendre polynomials), in the basis where A = Λ − P P*."""

    frequency: Tensor  # imaginary parts of Λ, one of each conjugate pair; all real parts are −1/2
    low_rank: Tensor
    write: Tensor


def hippo(size: int) -> Hippo:
    degrees = torch.arange(size, dtype=torch.float64)
    write = (2 * degrees + 1).sqrt()
    lower = torch.outer(write, write).tril(-1)
    skew = (lower.t() - lower) / 2  # of A + P P* + 1/2
    frequency, basis = torch.linalg.eigh(torch.complex(torch.zeros_like(skew), -skew))
    turned = basis.mH[size // 2 :]
    return Hippo(frequency[size // 2 :], turned @ (write / math.sqrt(2)).to(basis), turned @ write.to(basis))


def starting_frequencies(start: str, size: int) -> Tensor:
    """One frequency of each conjugate pair, in radians per unit of time."""
    index = torch.arange(size // 2, dtype=torch.float64)
    if start == "lin":
        return math.pi * index
    if start == "inv":
        return size / math.pi * (size / (2 * index + 1) - 1)
    return hippo(size).frequency
