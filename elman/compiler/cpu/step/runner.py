"""Runs a compiled step for one row: a step per call, or a whole sampling loop in C++ without returning to Python."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.step.compile import CompiledStep
from elman.compiler.cpu.step.memory import RowMemory, address, aligned, row_bytes
from elman.compiler.cpu.step.sampling_rules import History, Rules

ONE = ctypes.c_int64(1)
WORK = 3  # as in sampling.h


class Runner:
    """A compiled step with the state of one row."""

    def __init__(self, program: CompiledStep, state: list[Tensor]):
        self.program = program
        self._memory = RowMemory(program.lowered, aligned(row_bytes(program.lowered)))
        self._memory.load(state)
        self.input, self.output = self._memory.input, self._memory.output
        self._rows = (ctypes.c_void_p * 1)(self._memory.address)

    @property
    def state(self) -> list[Tensor]:
        """The state after the last step. Later steps overwrite it."""
        return self._memory.state

    def step(self, x: Tensor) -> Tensor:
        """The output, which the next step overwrites."""
        self.input.copy_(x)
        self.advance()
        return self.output

    def advance(self) -> None:
        """One step from `input` to `output`."""
        self.program.library.step(self.program.weights, self._rows, ONE, ONE)

    def run(self, rules: Rules, history: History, uniforms: Tensor, final: bool) -> tuple[list[int], list[float]]:
        """Samples tokens and steps on, one for each uniform random number, or until the end-of-text token.

        Returns the tokens and their log-probabilities. With `final`, the last token is not stepped on. Where logits are
        not finite, the last log-probability is NaN.
        """
        count = len(uniforms)
        tokens, log_probs = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.double)
        work = torch.empty(WORK * rules.vocab)
        given = *map(address, (uniforms, work)), ctypes.c_int64(count), ctypes.c_int64(final)
        results = map(address, (tokens, log_probs))
        chosen = build.runtime().run(*self._stepping(), ctypes.byref(rules), ctypes.byref(history), *given, *results)
        broken = chosen < count and bool(log_probs[chosen].isnan())
        return tokens[:chosen].tolist(), log_probs[: chosen + broken].tolist()

    def follow(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Steps through all inputs; returns -log p(target | inputs so far) in nats, in float64."""
        count, vocab = len(inputs), self.output.shape[-1]
        if count and not (targets.min() >= 0 and targets.max() < vocab):
            raise ValueError(f"a target is not among the {vocab} tokens")
        nats, work = torch.empty(count, dtype=torch.double), torch.empty(vocab)
        inputs, targets = inputs.contiguous(), targets.contiguous()
        given = ctypes.c_int64(vocab), *map(address, (inputs, targets, work)), ctypes.c_int64(count)
        build.runtime().follow(*self._stepping(), *given, address(nats))
        return nats

    def _stepping(self) -> tuple[Any, ...]:
        """What the loops of sampling.h need to take steps."""
        return self.program.library.step, self.program.weights, ctypes.c_void_p(self._memory.address)
