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
FOREVER, MANY = 1e9, 2**62  # seconds, steps
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
ARRAYS = "inputs", "uniforms", "given", "tokens", "log_probs", "top_tokens", "top_log_probs"
COUNTS = "inputs", "read", "unread", "drawn", "most", *ARRAYS[1:5], "top", *ARRAYS[5:], "own", "last"
TURN = np.dtype([("row", np.int64), ("choice", CHOICE), *((name, np.int64) for name in COUNTS)])


class Choice(NamedTuple):
    """A token, drawn or given, under the model itself: before temperature, penalties and the other settings."""

    token: int  # -1 where the logits are not finite
    log_prob: float
    is_best: bool  # no token is more probable
    top: list[tuple[int, float]]  # the most probable tokens and their log-probabilities


class Turn(NamedTuple):
    """What a row does next: it reads tokens, then draws some, and reads each of them but the last. Or it scores a given
    token after each that it reads."""

    row: int
    inputs: Sequence[int]
    uniforms: Sequence[float] = ()  # a random number in [0, 1) for each token that is drawn
    given: Sequence[int] = ()  # empty, or as many as inputs
    top: int = 0  # the number of most likely tokens that are reported


class Advance(NamedTuple):
    """How far a row came since this was asked last: how many inputs it has read, and what it has drawn or scored."""

    read: int
    tokens: list[int]  # -1 at the end where the logits are not finite
    log_probs: list[float]
    tops: list[list[tuple[int, float]]]  # empty without `top`


class _Taken:
    """A turn in progress: its arrays, and how much of it was reported."""

    def __init__(self, turn: Turn, top: int):
        most = len(turn.uniforms) or len(turn.given)
        self.top, self.read, self.drawn = top, 0, 0
        self.arrays = [
            np.array(turn.inputs, np.int64),
            np.array(turn.uniforms, np.float64),
            np.array(turn.given, np.int64),
            *(np.empty(most * size, kind) for size in (1, top) for kind in (np.int64, np.float64)),
        ]

    def advance(self, read: int, drawn: int) -> Advance:
        _, _, _, tokens, log_probs, top_tokens, top_log_probs = self.arrays
        new, likeliest = slice(self.drawn, drawn), slice(self.drawn * self.top, drawn * self.top)
        before, self.read, self.drawn = self.read, read, drawn
        lists: list[list[tuple[int, float]]] = []
        if self.top:
            pairs = [*zip(top_tokens[likeliest].tolist(), top_log_probs[likeliest].tolist(), strict=True)]
            lists = [pairs[at : at + self.top] for at in range(0, len(pairs), self.top)]
        return Advance(read - before, tokens[new].tolist(), log_probs[new].tolist(), lists)


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
        self._vocabulary = program.lowered.output.shape[-1]
        self._memory: list[RowMemory] = []
        self._texts: dict[int, _Text] = {}  # of the rows that are there
        self._free: list[int] = []
        self._addresses, self._slab = np.empty(0, np.int64), torch.empty(0, dtype=torch.uint8)
        self._choices = np.empty(0, CHOICE)
        self._turns, self._taken = np.empty(0, TURN), dict[int, _Taken]()
        self._going: dict[int, None] = {}  # rows whose turns are not over
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
        rules = Rules(self._vocabulary)
        self._texts[row] = _Text(state, rules, History(rules))
        self.set_rules(row, rules)
        if logits is not None:
            self._memory[row].output.copy_(logits)
        return row

    def set_rules(self, row: int, rules: Rules, known: Sequence[int] = ()) -> None:
        """How the row's tokens are drawn from now on, after the text `known`."""
        self._check([row])
        if rules.vocab != self._vocabulary:
            raise ValueError(f"rules for {rules.vocab} tokens; the model has {self._vocabulary}")
        history = History(rules, known)
        self._texts[row] = self._texts[row]._replace(rules=rules, history=history)
        addresses = self._memory[row].output.data_ptr(), ctypes.addressof(rules), history.recent, history.counts or 0
        self._choices[row] = (*addresses, 0, DRAW, 0, 0, 0)

    def remove(self, row: int) -> None:
        """Ends a row; the next one takes its memory."""
        self._check([row])
        del self._texts[row]
        self._going.pop(row, None)
        self._taken.pop(row, None)
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
        self._check_tokens(tokens)
        return self._choose(rows, 0, np.asarray(tokens, np.int64), top)

    def _choose(self, rows: Sequence[int], uniforms: Any, given: Any, top: int) -> list[Choice]:
        self._check(rows)
        choices = self._choices[np.asarray(rows, np.int64)]
        choices["uniform"], choices["given"] = uniforms, given
        top = min(top, self._vocabulary)
        tokens, log_probs = np.zeros((len(rows), top), np.int64), np.zeros((len(rows), top))
        arrays = [ctypes.c_void_p(array.ctypes.data) for array in (choices, tokens, log_probs)]
        build.runtime().choose_rows(self._pool, arrays[0], *map(ctypes.c_int64, (len(rows), top)), *arrays[1:])
        tops = [list(zip(*pair, strict=True)) for pair in zip(tokens.tolist(), log_probs.tolist(), strict=True)]
        found = [choices[name].tolist() for name in ("token", "log_prob", "best")]
        return [
            Choice(token, log_prob, bool(best), top) for token, log_prob, best, top in zip(*found, tops, strict=True)
        ]

    def begin(self, turn: Turn) -> None:
        """Gives a row a turn, which `advance` takes."""
        row = turn.row
        self._check([row])
        if not len(turn.inputs) or len(turn.given) not in (0, len(turn.inputs)):
            raise ValueError(f"{len(turn.inputs)} tokens to read, {len(turn.given)} to be scored after them")
        self._check_tokens(turn.given)
        taken = self._taken[row] = _Taken(turn, min(turn.top, self._vocabulary))
        entry = dict(zip(ARRAYS, (array.ctypes.data for array in taken.arrays), strict=True))
        entry |= {"row": self._addresses[row], "choice": self._choices[row], "unread": len(turn.inputs)}
        entry |= {"most": len(turn.uniforms) or len(turn.given), "top": taken.top}
        entry |= {} if len(turn.given) else {"given": 0}
        self._turns[row] = tuple(entry.get(name, 0) for name in TURN.names or ())
        self._going[row] = None

    def advance(self, seconds: float = FOREVER, steps: int = MANY, beside: int = 0) -> list[int]:
        """Takes the turns of all rows that have one: as many steps of all rows as fit into the time, or a fifth of it
        where some turns are over, but one at least. Texts end at the token that their rules say. Between two steps,
        rows with more than one token to read take up to `beside` steps by themselves. Returns the rows whose turns are
        over."""
        rows = np.array([*self._going], np.int64)
        given = [ctypes.c_void_p(array.ctypes.data) for array in (self._turns, rows)]
        numbers = map(ctypes.c_int64, (len(rows), steps, beside))
        stepping = self.program.library.step, self.program.weights
        build.runtime().advance_rows(self._pool, *stepping, *given, *numbers, ctypes.c_double(seconds))
        over: list[int] = rows[self._turns["unread"][rows] == 0].tolist()
        for row in over:
            del self._going[row]
        return over

    def progress(self, row: int) -> Advance:
        """What a row has done in its turn since this was asked last."""
        turn = self._turns[row]
        return self._taken[row].advance(int(turn["read"]), int(turn["drawn"]))

    def logits(self, row: int) -> Tensor:
        """The logits (1, vocabulary) after the row's last token. The row's next step overwrites them."""
        self._check([row])
        return self._memory[row].output

    def state(self, row: int) -> State:
        """A copy of a row's state."""
        self._check([row])
        return with_leaves(self._texts[row].state, self._memory[row].copied())

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
        self._turns = np.append(self._turns, np.zeros(1, TURN))

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if wrong := [token for token in tokens if not 0 <= token < self._vocabulary]:
            raise ValueError(f"token {wrong[0]} is not among the {self._vocabulary} tokens")

    def _check(self, rows: Sequence[int]) -> None:
        if missing := [row for row in rows if row not in self._texts]:
            raise ValueError(f"there is no row {missing[0]}")
        if len(set(rows)) < len(rows):
            raise ValueError("a row is given twice; a step moves each row on by one token")
