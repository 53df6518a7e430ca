"""Runs a compiled step for many rows that come and go, each with the same bits as alone."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.step.compile import CompiledStep
from elman.compiler.cpu.step.memory import HUGE, RowMemory, aligned, row_bytes
from elman.compiler.cpu.step.sampling_rules import History, Rules
from elman.ops.state import leaves, with_leaves
from elman.shapes import State

SLAB = 4 * HUGE  # bytes allocated together for rows: huge pages for rows that are smaller
DRAW = -1  # in place of a given token
ADDRESSES = ("logits", "rules", "recent", "counts")
CHOICE = np.dtype(
    [  # the struct of rows.h
        *((name, np.int64) for name in ADDRESSES),
        ("uniform", np.float64),
        ("given", np.int64),
        ("token", np.int64),
        ("log_prob", np.float64),
        ("best", np.int64),
    ]
)


class Choice(NamedTuple):
    """A token, drawn or given, under the model itself: before temperature, penalties and the other settings."""

    token: int  # -1 where the logits are not finite
    log_prob: float
    is_best: bool  # no token is more probable
    top: list[tuple[int, float]]  # the most probable tokens and their log-probabilities


class _Text(NamedTuple):
    """What a row carries besides its memory."""

    state: State  # what its state looks like
    rules: Rules
    history: History


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
        self._texts: dict[int, _Text] = {}  # of the rows that are there
        self._free: list[int] = []
        self._addresses, self._slab = np.empty(0, np.int64), torch.empty(0, dtype=torch.uint8)
        self._choices = np.empty(0, CHOICE)
        self._pool = ctypes.c_void_p(build.runtime().open_pool(ctypes.c_int64(threads)))
        if not self._pool:
            raise RuntimeError(f"the system does not allow {threads} threads")
        weakref.finalize(self, build.runtime().close_pool, self._pool)

    def __len__(self) -> int:
        """The number of rows that are there."""
        return len(self._texts)

    def add(self, state: State, logits: Tensor | None = None) -> int:
        """A new row with a copy of this state (of batch 1), and of the logits after its last token. Returns its number,
        which may be that of a removed row."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._memory[row].load(leaves(state))
        rules = Rules(self._memory[row].output.shape[-1])
        self._texts[row] = _Text(state, rules, History(rules))
        self.set_rules(row, rules)
        if logits is not None:
            self._memory[row].output.copy_(logits)
        return row

    def set_rules(self, row: int, rules: Rules, known: Sequence[int] = ()) -> None:
        """How the row's tokens are drawn from now on, after the text `known`."""
        self._check([row])
        if rules.vocab != self._memory[row].output.shape[-1]:
            raise ValueError(f"rules for {rules.vocab} tokens; the model has {self._memory[row].output.shape[-1]}")
        history = History(rules, known)
        self._texts[row] = self._texts[row]._replace(rules=rules, history=history)
        addresses = self._memory[row].output.data_ptr(), ctypes.addressof(rules), history.recent, history.counts or 0
        self._choices[row] = (*addresses, 0, DRAW, 0, 0, 0)

    def remove(self, row: int) -> None:
        """Ends a row; the next one takes its memory."""
        self._check([row])
        del self._texts[row]
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

    def sample(self, rows: Sequence[int], uniforms: Sequence[float], top: int = 0) -> list[Choice]:
        """Draws the next token of each row from its logits, by its rules and one random number in [0, 1); with it come
        the `top` most probable tokens. Steps nothing."""
        return self._choose(rows, np.asarray(uniforms, np.float64), DRAW, top)

    def score(self, rows: Sequence[int], tokens: Sequence[int], top: int = 0) -> list[Choice]:
        """The log-probability of a given next token of each row."""
        vocab = self.program.lowered.output.shape[-1]
        if wrong := [token for token in tokens if not 0 <= token < vocab]:
            raise ValueError(f"token {wrong[0]} is not among the {vocab} tokens")
        return self._choose(rows, 0, np.asarray(tokens, np.int64), top)

    def _choose(self, rows: Sequence[int], uniforms: Any, given: Any, top: int) -> list[Choice]:
        self._check(rows)
        choices = self._choices[np.asarray(rows, np.int64)]
        choices["uniform"], choices["given"] = uniforms, given
        top = min(top, self.program.lowered.output.shape[-1])
        tokens, log_probs = np.zeros((len(rows), top), np.int64), np.zeros((len(rows), top))
        arrays = [ctypes.c_void_p(array.ctypes.data) for array in (choices, tokens, log_probs)]
        build.runtime().choose_rows(self._pool, arrays[0], *map(ctypes.c_int64, (len(rows), top)), *arrays[1:])
        tops = [list(zip(*pair, strict=True)) for pair in zip(tokens.tolist(), log_probs.tolist(), strict=True)]
        found = [choices[name].tolist() for name in ("token", "log_prob", "best")]
        return [
            Choice(token, log_prob, bool(best), top) for token, log_prob, best, top in zip(*found, tops, strict=True)
        ]

    def logits(self, row: int) -> Tensor:
        """The logits (1, vocabulary) after the row's last token. The row's next step overwrites them."""
        self._check([row])
        return self._memory[row].output

    def state(self, row: int) -> State:
        """A copy of a row's state."""
        self._check([row])
        return with_leaves(self._texts[row].state, [part.clone() for part in self._memory[row].state])

    def set_state(self, row: int, state: State) -> None:
        """Copies a state into a row."""
        self._check([row])
        self._memory[row].load(leaves(state))

    def _grow(self) -> None:
        """Memory of one more row."""
        size = row_bytes(self.program.lowered)
        if len(self._slab) < size:
            self._slab = aligned(max(SLAB, size))
        block, self._slab = self._slab[:size], self._slab[size:]
        self._free.append(len(self._memory))
        self._memory.append(RowMemory(self.program.lowered, block))
        self._addresses = np.append(self._addresses, self._memory[-1].address)
        self._choices = np.append(self._choices, np.zeros(1, CHOICE))

    def _check(self, rows: Sequence[int]) -> None:
        if missing := [row for row in rows if row not in self._texts]:
            raise ValueError(f"there is no row {missing[0]}")
        if len(set(rows)) < len(rows):
            raise ValueError("a row is given twice; a step moves each row on by one token")
