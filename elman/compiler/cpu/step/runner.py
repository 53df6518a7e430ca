"""Runs a compiled step: one step per call, or a whole sampling loop in C++ without returning to Python."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.step.compile import CompiledStep, address, aligned, pointers


class Rules(ctypes.Structure):
    """Sampling settings as a C struct; see `elman.generation.sampling` for their meaning."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "top_k", "window", "end", "start", "stops")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "penalty")),
    ]


class Runner:
    """A compiled step with its state, double-buffered: each step reads one copy and writes the other."""

    def __init__(self, program: CompiledStep, state: list[Tensor]):
        self.program, like = program, program.lowered
        shapes, known = ([tuple(part.shape) for part in parts] for parts in (state, like.state))
        assert shapes == known, f"the state has shapes {shapes}; the program needs {known}"
        self._memory = [self._allocate(number, part) for number, part in enumerate(state)]
        self._pointers = [pointers([pair[side] for pair in self._memory]) for side in (0, 1)]
        self.input = torch.empty(like.input.shape, dtype=like.input.dtype)
        self.output = torch.empty(like.output.shape, dtype=like.output.dtype)
        self._scratch_memory = aligned(like.scratch)
        self._scratch = address(self._scratch_memory)
        self._input_address, self._output = address(self.input), address(self.output)
        self._now = 0

    def _allocate(self, number: int, part: Tensor) -> tuple[Tensor, Tensor]:
        """A copy of a part of the state, and memory for its next value: the same memory for a sliding window."""
        like, window = self.program.lowered.state[number], self.program.lowered.windows.get(number)
        if window is None:
            return part.to(like.dtype, copy=True).contiguous(), torch.empty(like.shape, dtype=like.dtype)
        strip = window.allocate(like.dtype)
        window.view(strip, like.dtype).copy_(part)
        return strip, strip

    @property
    def state(self) -> list[Tensor]:
        """The state after the last step. Later steps overwrite it."""
        lowered = self.program.lowered
        return [
            lowered.windows[n].view(pair[0], lowered.state[n].dtype) if n in lowered.windows else pair[self._now]
            for n, pair in enumerate(self._memory)
        ]

    def step(self, x: Tensor) -> Tensor:
        """The output, which the next step overwrites."""
        self.input.copy_(x)
        self.advance()
        return self.output

    def advance(self) -> None:
        """One step from `input` to `output`."""
        before, after = self._pointers[self._now], self._pointers[1 - self._now]
        self.program.library.step(self.program.weights, self._scratch, self._input_address, before, after, self._output)
        self._now = 1 - self._now

    def _step_arguments(self) -> tuple[Any, ...]:
        """What the loops of sampling.h need to take steps."""
        before, after = self._pointers[self._now], self._pointers[1 - self._now]
        return self.program.library.step, self.program.weights, self._scratch, before, after, self._output

    def run(self, rules: Rules, uniforms: Tensor, recent: Tensor, final: bool) -> tuple[list[int], list[float]]:
        """Samples tokens and steps on, one for each uniform random number, or until the end-of-text token.

        Returns the tokens and their log-probabilities. With `final`, the last token is not stepped on. Where logits are
        not finite, the last log-probability is NaN.
        """
        count = len(uniforms)
        tokens, log_probs = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.double)
        work = torch.empty(2 * rules.vocab)
        given = *map(address, (uniforms, recent, work)), ctypes.c_int64(count), ctypes.c_int64(final)
        results = map(address, (tokens, log_probs))
        chosen = build.runtime().run(*self._step_arguments(), ctypes.byref(rules), *given, *results)
        broken = chosen < count and bool(log_probs[chosen].isnan())
        ended = chosen > 0 and rules.stops and int(tokens[chosen - 1]) == rules.end
        steps = chosen - bool(not broken and (ended or (final and chosen == count)))
        self._now = (self._now + steps) % 2
        return tokens[:chosen].tolist(), log_probs[: chosen + broken].tolist()

    def follow(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Steps through all inputs; returns -log p(target | inputs so far) in nats, in float64."""
        count, vocab = len(inputs), self.output.shape[-1]
        nats, work = torch.empty(count, dtype=torch.double), torch.empty(vocab)
        inputs, targets = inputs.contiguous(), targets.contiguous()
        given = ctypes.c_int64(vocab), *map(address, (inputs, targets, work)), ctypes.c_int64(count)
        build.runtime().follow(*self._step_arguments(), *given, address(nats))
        self._now = (self._now + count) % 2
        return nats
