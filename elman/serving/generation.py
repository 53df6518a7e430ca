"""One text that is being generated: its prompt, settings and progress, and what is reported of it."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from elman.generation.detokenize import Detokenizer
from elman.generation.sampling import GenerationConfig, random_stream
from elman.serving.rows import Plan, Rule
from elman.shapes import State

EVERY = 64  # tokens of a prompt between two states that are worth keeping
CHUNK = 64  # tokens that are drawn at most before others have a turn
TAIL = 64  # latest tokens that a snapshot keeps: they decide spaces and repetition penalties of what follows
Reason = Literal["stop", "length"]  # as OpenAI calls them: the end of the text or a stop string, or enough tokens


class Snapshot(NamedTuple):
    """A text at one position, as a value: the state, and the tokens that have not been read into it."""

    state: State
    pending: tuple[int, ...]  # to be read before the next token is drawn
    position: int  # tokens read so far, the start of the text among them
    tail: tuple[int, ...] = ()  # the latest tokens, pending ones included


class Piece(NamedTuple):
    """A generated token."""

    token: int
    log_prob: float
    top: list[tuple[int, float]]
    text: str  # what has become certain of the text, which may lag behind the token


class Scored(NamedTuple):
    """A token of the prompt, given those before."""

    token: int
    log_prob: float
    top: list[tuple[int, float]]


class Finished(NamedTuple):
    reason: Reason
    text: str  # the rest
    snapshot: Snapshot | None


class Failed(NamedTuple):
    problem: Exception


Output = Piece | Scored | Finished | Failed


class Generation:
    """A row of work. `known` tokens are read first, then up to `limit` are drawn.

    Fields below the line belong to the scheduler's thread.
    """

    def __init__(
        self,
        known: Sequence[int],
        config: GenerationConfig,
        tokenizer: Any,
        *,
        limit: int,
        start: Snapshot | None = None,
        seed: int = 0,
        stream: int = 0,
        top: int = 0,
        scored: bool = False,
        keep: bool = False,
        forks: Sequence["Generation"] = (),
        owner: str = "",
    ):
        assert known, "a row has a token to read"
        self.known, self.config, self.limit, self.start = known, config, limit, start
        self.tail = start.tail if start else ()
        self.random = random_stream(seed, stream)
        self.excluded = None if config.unknown or tokenizer.unk_id == tokenizer.eos_id else tokenizer.unk_id
        self.top, self.scored, self.keep, self.owner = top, scored, keep, owner
        self.forks: Sequence[Generation] = forks
        self.tokenizer = tokenizer
        self.cancelled = False
        self.state = start.state if start else None
        # --------------------------------------------------------------------
        self.row, self.entered, self.ended = 0, 0.0, False
        self.read = 0  # known tokens that the state has read
        self.cached = 0  # of these, how many came with a cached state
        self.generated: list[int] = []
        self.outputs: list[Output] = []  # not delivered yet
        self.delivered = 0.0  # when some were delivered last
        self._random_numbers = np.empty(0)  # of the next tokens
        self.detokenizer: Detokenizer | None = None

    @property
    def unread(self) -> int:
        return len(self.known) - self.read

    @property
    def position(self) -> int:
        """Tokens that the state has read since the start of the text."""
        return (self.start.position if self.start else 0) + self.read + max(len(self.generated) - 1, 0)

    @property
    def prompt(self) -> list[int]:
        """The latest tokens before the first drawn one, without the start of a text."""
        return [*self.tail, *(self.known if self.start else self.known[1:])]

    def latest(self) -> list[int]:
        """The latest tokens of the text."""
        return [*self.prompt[-TAIL:], *self.generated][-TAIL:]

    def rule(self) -> Rule:
        known = self.prompt[-self.config.repetition_window :]
        return Rule(self.config, self.excluded, known, self.tokenizer.eos_id, self.tokenizer.start_id)

    @property
    def is_exact(self) -> bool:
        """Whether the state after the text is wanted, though only the text tells where it stops: then no token is
        drawn beyond."""
        return self.keep and bool(self.config.stop)

    def plan(self, first: int) -> Plan:
        """What to do next: to read the prompt up to where its state may be wanted, or to draw tokens. Of a text without
        any, `first` are drawn before it is looked at."""
        start, last = self.read, len(self.known) - 1
        if start < last:
            end = min((start // EVERY + 1) * EVERY, last)
            targets = self.known[start + 1 : end + 1] if self.scored else ()
            return Plan(self.row, self._inputs(self.known[start:end]), targets, top=self.top)
        known = self.known[last:] if self.unread else self.generated[-1:]
        uniforms = self._uniforms(1 if self.is_exact else CHUNK if self.generated else first)
        return Plan(self.row, self._inputs(known), (), uniforms, self.top, self.config.stop_at_end)

    def _inputs(self, tokens: Sequence[int]) -> list[int]:
        """The tokens as the model reads them: the start of a text after the end of one."""
        end, start = self.tokenizer.eos_id, self.tokenizer.start_id
        return [start if token == end else token for token in tokens]

    def _uniforms(self, most: int) -> np.ndarray:
        """A random number for each token that is drawn next."""
        count = min(most, self.limit - len(self.generated))
        if self.config.temperature == 0:
            return np.zeros(count)
        if len(self._random_numbers) < count:
            more = self.random.random(max(count - len(self._random_numbers), 1))
            self._random_numbers = np.concatenate([self._random_numbers, more])
        return self._random_numbers[:count]

    def push(self, tokens: Sequence[int]) -> list[str]:
        """Notes drawn tokens, up to where the text ends; returns the text that has become certain with each."""
        if self.detokenizer is None:
            self.detokenizer = Detokenizer(self.tokenizer, self.prompt[-TAIL:], self.config)
        texts = self.detokenizer.push_all(tokens)
        self.generated += tokens[: len(texts)]
        self._random_numbers = self._random_numbers[len(texts) :]
        return texts

    @property
    def finished(self) -> Reason | None:
        """Why no further token is drawn."""
        ended = self.detokenizer.finished if self.detokenizer else None
        if ended:
            return "stop"
        return "length" if len(self.generated) >= self.limit else None

    def close(self) -> str:
        """The text that was held back."""
        return self.detokenizer.close() if self.detokenizer and not self.detokenizer.finished else ""
