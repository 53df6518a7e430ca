"""One text that is being generated: its prompt, settings and progress, and what is reported of it."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from elman.generation.detokenize import Detokenizer
from elman.generation.sampling import GenerationConfig, random_stream
from elman.serving.rows import Draw, Rule
from elman.shapes import State

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
        self.detokenizer: Detokenizer | None = None

    @property
    def unread(self) -> int:
        return len(self.known) - self.read

    @property
    def wants_logits(self) -> bool:
        return self.scored or (self.unread == 1 and self.limit > 0)

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
        return Rule(self.config, self.excluded, self.prompt[-self.config.repetition_window :])

    def draw(self) -> Draw:
        """How the next token is drawn; takes its random number."""
        return Draw(self.row, float(self.random.random()) if self.config.temperature else 0.0, self.top)

    def uniforms(self, most: int) -> np.ndarray:
        """The random numbers of the next tokens, as many as can be drawn without looking at them."""
        if self.keep and self.config.stop:
            most = min(most, 1)  # the state is wanted as it is at a stop string
        count = min(most, self.limit - len(self.generated))
        return self.random.random(count) if self.config.temperature else np.zeros(count)

    def score_next(self) -> Draw:
        """The known token after those that were read, to be scored."""
        return Draw(self.row, top=self.top, token=self.known[self.read])

    def push(self, token: int) -> str:
        """Notes a drawn token; returns the text that has become certain."""
        if self.detokenizer is None:
            self.detokenizer = Detokenizer(self.tokenizer, self.prompt[-TAIL:], self.config)
        self.generated.append(token)
        return self.detokenizer.push(token)

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
