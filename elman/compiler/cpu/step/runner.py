"""A program at work: one step at a time, or many tokens chosen and stepped on without a return to Python."""

import ctypes

import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.step.program import Program, address, aligned, pointers


class Rules(ctypes.Structure):
    """How tokens are chosen; `elman.generation.sampling` says what these mean."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "top_k", "window", "end", "start", "stops")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "penalty")),
    ]


class Runner:
    """A program on its way: two states, of which each step reads one and writes the other."""

    def __init__(self, program: Program, state: list[Tensor]):
        self.program, like = program, program.lowered
        shapes, known = ([tuple(part.shape) for part in parts] for parts in (state, like.state))
        assert shapes == known, f"a state of {shapes} is not the program's, of {known}"
        self._memory = [self._remember(number, part) for number, part in enumerate(state)]
        self._pointers = [pointers([pair[side] for pair in self._memory]) for side in (0, 1)]
        self.given = torch.empty(like.given.shape, dtype=like.given.dtype)
        self.output = torch.empty(like.output.shape, dtype=like.output.dtype)
        self._room = aligned(like.scratch)
        self._scratch = address(self._room)
        self._given, self._output = address(self.given), address(self.output)
        self._now = 0

    def _remember(self, number: int, part: Tensor) -> tuple[Tensor, Tensor]:
        """A copy of it, and where the next one goes: the same place, if this part of the state slides."""
        like, slide = self.program.lowered.state[number], self.program.lowered.slides.get(number)
        if slide is None:
            return part.to(like.dtype, copy=True).contiguous(), torch.empty(like.shape, dtype=like.dtype)
        strip = slide.strip(like.dtype)
        slide.window(strip, like.dtype).copy_(part)
        return strip, strip

    @property
    def state(self) -> list[Tensor]:
        """After the last step. Further steps write over it: copy what is to be kept."""
        lowered = self.program.lowered
        return [
            lowered.slides[n].window(pair[0], lowered.state[n].dtype) if n in lowered.slides else pair[self._now]
            for n, pair in enumerate(self._memory)
        ]

    def step(self, given: Tensor) -> Tensor:
        """The output; the next step writes over it."""
        self.given.copy_(given)
        self.advance()
        return self.output

    def advance(self) -> None:
        """One step from `given` to `output`."""
        before, after = self._pointers[self._now], self._pointers[1 - self._now]
        self.program.library.step(self.program.weights, self._scratch, self._given, before, after, self._output)
        self._now = 1 - self._now

    def run(self, rules: Rules, uniforms: Tensor, recent: Tensor, final: bool) -> tuple[list[int], list[float]]:
        """Tokens chosen from `output` and stepped on, one for each of the uniform numbers unless the end comes before.

        With `final`, no step follows the last. Where logits are broken, the last log-probability is NaN.
        """
        count = len(uniforms)
        tokens, log_probs = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.double)
        work = torch.empty(2 * rules.vocab)
        chosen = build.runtime().run(
            self.program.library.step,
            self.program.weights,
            self._scratch,
            self._pointers[self._now],
            self._pointers[1 - self._now],
            self._output,
            ctypes.byref(rules),
            *map(address, (uniforms, recent, work)),
            ctypes.c_int64(count),
            ctypes.c_int64(final),
            *map(address, (tokens, log_probs)),
        )
        broken = chosen < count and bool(log_probs[chosen].isnan())
        ended = chosen > 0 and rules.stops and int(tokens[chosen - 1]) == rules.end
        steps = chosen - bool(not broken and (ended or (final and chosen == count)))
        self._now = (self._now + steps) % 2
        return tokens[:chosen].tolist(), log_probs[: chosen + broken].tolist()

    def follow(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Steps through all inputs, and how surprising each target is after its input: nats, in float64."""
        count, vocab = len(inputs), self.output.shape[-1]
        nats, work = torch.empty(count, dtype=torch.double), torch.empty(vocab)
        inputs, targets = inputs.contiguous(), targets.contiguous()
        build.runtime().follow(
            self.program.library.step,
            self.program.weights,
            self._scratch,
            self._pointers[self._now],
            self._pointers[1 - self._now],
            self._output,
            ctypes.c_int64(vocab),
            *map(address, (inputs, targets, work)),
            ctypes.c_int64(count),
            address(nats),
        )
        self._now = (self._now + count) % 2
        return nats
