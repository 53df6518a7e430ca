"""Runs a compiled step: `Runner` one row, one step per call or a whole sampling loop in C++; `RowRunner` many rows that
come and go, each with the same bits as alone."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.step.compile import CompiledStep
from elman.compiler.cpu.step.memory import RowMemory, address, aligned, row_bytes
from elman.ops.state import leaves, with_leaves
from elman.shapes import State

ONE = ctypes.c_int64(1)
SLAB = 8  # rows whose memory is allocated together


class Rules(ctypes.Structure):
    """Sampling settings as a C struct; see `elman.generation.sampling` for their meaning."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "top_k", "window", "end", "start", "stops", "excluded")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "penalty")),
    ]


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
        chosen = build.runtime().run(*self._stepping(), ctypes.byref(rules), *given, *results)
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


class RowRunner:
    """A compiled step of a language model for many rows, which enter and leave between any two steps.

    A step reads the weights once for all rows. The logits and the state of a row have the same bits whatever the other
    rows, their number and order, and the number of threads; each thread steps a part of the rows.
    """

    def __init__(self, program: CompiledStep, threads: int = 1):
        if threads < 1:
            raise ValueError(f"{threads} threads; at least 1 is needed")
        if program.lowered.input.numel() != 1 or program.lowered.input.dtype != torch.long:
            raise ValueError("rows are stepped by tokens; this step was compiled for another input")
        self.program, self.threads = program, threads
        self._memory: list[RowMemory] = []
        self._structures: dict[int, State] = {}  # of the rows that are there: what their state looks like
        self._free: list[int] = []
        self._addresses = np.empty(0, np.int64)
        self._pool = ctypes.c_void_p(build.runtime().open_pool(ctypes.c_int64(threads)))
        if not self._pool:
            raise RuntimeError(f"the system does not allow {threads} threads")
        weakref.finalize(self, build.runtime().close_pool, self._pool)

    def __len__(self) -> int:
        """The number of rows that are there."""
        return len(self._structures)

    def add(self, state: State, logits: Tensor | None = None) -> int:
        """A new row with a copy of this state (of batch 1), and of the logits after its last token. Returns its number,
        which may be that of a removed row."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._memory[row].load(leaves(state))
        self._structures[row] = state
        if logits is not None:
            self._memory[row].output.copy_(logits)
        return row

    def remove(self, row: int) -> None:
        """Ends a row; the next one takes its memory."""
        self._check([row])
        del self._structures[row]
        self._free.append(row)

    def step(self, rows: Sequence[int], tokens: Sequence[int], wanted: Sequence[bool] | None = None) -> None:
        """Steps each of these rows on by its token. Where `wanted` is false, the logits are not computed (those of
        before are lost), which saves the output layer."""
        self._check(rows)
        if len(tokens) != len(rows) or (wanted is not None and len(wanted) != len(rows)):
            raise ValueError(f"{len(rows)} rows, {len(tokens)} tokens")
        addresses = self._addresses[np.asarray(rows, np.int64)]
        inputs = np.ascontiguousarray(tokens, np.int64)
        outputs = np.ones(len(rows), np.uint8) if wanted is None else np.ascontiguousarray(wanted, np.uint8)
        arrays = [ctypes.c_void_p(array.ctypes.data) for array in (addresses, inputs, outputs)]
        stepping = self.program.library.step, self.program.weights
        build.runtime().step_rows(self._pool, *stepping, *arrays, ctypes.c_int64(len(rows)))

    def logits(self, row: int) -> Tensor:
        """The logits (1, vocabulary) after the row's last token. The row's next step overwrites them."""
        self._check([row])
        return self._memory[row].output

    def state(self, row: int) -> State:
        """A copy of a row's state."""
        self._check([row])
        return with_leaves(self._structures[row], [part.clone() for part in self._memory[row].state])

    def set_state(self, row: int, state: State) -> None:
        """Copies a state into a row."""
        self._check([row])
        self._memory[row].load(leaves(state))

    def _grow(self) -> None:
        size, count = row_bytes(self.program.lowered), len(self._memory)
        slab = aligned(SLAB * size)
        self._memory += [RowMemory(self.program.lowered, slab[n * size : (n + 1) * size]) for n in range(SLAB)]
        self._addresses = np.array([memory.address for memory in self._memory], np.int64)
        self._free += reversed(range(count, count + SLAB))

    def _check(self, rows: Sequence[int]) -> None:
        if missing := [row for row in rows if row not in self._structures]:
            raise ValueError(f"there is no row {missing[0]}")
        if len(set(rows)) < len(rows):
            raise ValueError("a row is given twice; a step moves each row on by one token")
