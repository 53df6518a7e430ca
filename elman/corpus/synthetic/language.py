"""Synthetic languages: deterministic automata with exactly known next-word distributions.

From each state, each possible word has a probability and leads to one state. So a prefix determines the state, its
next-word distribution is a lookup, and the entropy is a sum over expected visits to states.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, count, islice
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from elman.config import Config
from elman.corpus.document import SPLITS, Document, Mark
from elman.errors import DataError, UnknownName
from elman.registry import Registry

END = "<eos>"
CACHED = 2**16  # cached rows; deep brackets have very many states

State: TypeAlias = Hashable
Transition: TypeAlias = tuple[str, float, State]  # word, probability, next state (any for END)


class Row(NamedTuple):
    """The next-word distribution of a state; `place` maps words to indices."""

    words: list[str]
    probabilities: list[float]
    targets: list[State]
    cumulative: list[float]
    place: dict[str, int]

    def entropy(self) -> float:
        return -math.fsum(p * math.log(p) for p in self.probabilities)


class MinimalPair(NamedTuple):
    """A prefix with two next words, one of them ungrammatical."""

    prefix: tuple[str, ...]
    right: str
    wrong: str
    distance: int
    attractors: int


class Language(ABC):
    """Constructed as `Language(config)`; subclasses define `start` and `transitions`."""

    name: ClassVar[str]
    start: State

    class Config(Config):
        seed: int = Field(default=0, ge=0)
        """Random seed of all documents, and of the language's own tables."""
        train_documents: int = Field(default=20_000, ge=0)
        """Number of training documents."""
        valid_documents: int = Field(default=1_000, ge=0)
        """Number of validation documents."""
        test_documents: int = Field(default=1_000, ge=0)
        """Number of test documents."""

    def __init__(self, config: Config):
        self.config = config
        self._row = lru_cache(CACHED)(lambda state: _make_row(self.transitions(state)))

    @abstractmethod
    def transitions(self, state: State) -> Iterator[Transition]:
        """Each possible next word once, with its probability and the state after it."""

    def marks(self, words: Sequence[str], states: Sequence[State]) -> tuple[Mark, ...]:
        """The words whose form an earlier word decides; `states` are the states before each word."""
        return ()

    def kind(self, state: State) -> State:
        """Equivalence class of a state: members differ only in their words (of equal length), so entropy needs one of
        each."""
        return state

    # Documents

    def split(self, name: str) -> Iterator[Document]:
        """The documents of train, valid or test; reproducible, each split with its own random generator."""
        if name not in SPLITS:
            raise UnknownName("split", name, SPLITS)
        return self._documents(name)

    def minimal_pairs(self, split: str, limit: int | None = None) -> Iterator[MinimalPair]:
        """The first `limit` marked words of a split, each with its prefix and its wrong form."""
        pairs = (
            MinimalPair(tuple(words[: mark.word]), words[mark.word], mark.wrong, mark.distance, mark.attractors)
            for document in self.split(split)
            for words in [document.text.split(" ")]
            for mark in document.marks
        )
        return islice(pairs, limit)

    def random(self, stream: int) -> np.random.Generator:
        """Random generators: stream 0 for tables, the following ones for splits."""
        return np.random.default_rng(np.random.SeedSequence(self.config.seed, spawn_key=(stream,)))

    def _documents(self, split: str) -> Iterator[Document]:
        random = self.random(1 + SPLITS.index(split))
        uniforms = chain.from_iterable(random.random(4096).tolist() for _ in count())
        source = f"{self.name}/{split}"
        for line in range(1, getattr(self.config, f"{split}_documents") + 1):
            words, states = self._sample(uniforms)
            text = " ".join(words)
            yield Document(text, source, line, len(text.encode()) + 1, self.marks(words, states))

    def _sample(self, uniforms: Iterator[float]) -> tuple[list[str], list[State]]:
        words: list[str] = []
        states: list[State] = []
        state = self.start
        for chance in uniforms:
            row = self._row(state)
            choice = bisect(row.cumulative, chance)
            word = row.words[choice]
            if word == END:
                break
            words.append(word)
            states.append(state)
            state = row.targets[choice]
        return words, states

    # The true distribution

    def distribution(self, words: Sequence[str]) -> dict[str, float]:
        """The probability of each next word, including END, after a prefix of a document."""
        row = self._row(self.start)
        for position, word in enumerate(words):
            row = self._row(row.targets[self._find(row, word, position)])
        return dict(zip(row.words, row.probabilities, strict=True))

    def log_probs(self, words: Sequence[str]) -> list[float]:
        """Log-probability (nats) of each word of a document, and of END."""
        result: list[float] = []
        state = self.start
        for position, word in enumerate([*words, END]):
            row = self._row(state)
            place = self._find(row, word, position, last=position == len(words))
            result.append(math.log(row.probabilities[place]))
            state = row.targets[place]
        return result

    def _find(self, row: Row, word: str, position: int, last: bool = False) -> int:
        if word not in row.place or (word == END and not last):
            possible = [f"{known!r}" for known in row.words[:8]] + ["…"] * (len(row.words) > 8)
            reason = f"the language {self.name!r} cannot have {word!r} as word {position + 1} of this document"
            raise DataError(reason, remedy=f"possible there: {', '.join(possible)}")
        return row.place[word]

    # Statistics of the language

    @cached_property
    def entropy(self) -> float:
        """Nats per token, including END: expected nats of a document over its expected tokens."""
        return math.fsum(visits * row.entropy() for visits, row in self._visits) / self.expected_tokens

    @cached_property
    def expected_tokens(self) -> float:
        """Mean number of words of a document, plus END."""
        return math.fsum(visits for visits, _ in self._visits)

    @cached_property
    def expected_bytes(self) -> float:
        """Mean number of bytes of a document with its newline: each word is followed by a space or newline."""
        return math.fsum(
            visits * p * (len(word.encode()) + 1)
            for visits, row in self._visits
            for word, p in zip(row.words, row.probabilities, strict=True)
            if word != END
        )

    @property
    def bits_per_byte(self) -> float:
        """The entropy in bits per byte."""
        return self.entropy * self.expected_tokens / self.expected_bytes / math.log(2)

    @cached_property
    def vocabulary(self) -> list[str]:
        """All words, sorted, without END."""
        return sorted({word for _, row in self._visits for word in row.words} - {END})

    @cached_property
    def states(self) -> list[State]:
        """One reachable state of each equivalence class, `start` first."""
        found = {self.kind(self.start): self.start}
        waiting = [self.start]
        while waiting:
            row = self._row(waiting.pop())
            for word, target in zip(row.words, row.targets, strict=True):
                if word != END and self.kind(target) not in found:
                    found[self.kind(target)] = target
                    waiting.append(target)
        return list(found.values())

    @cached_property
    def _visits(self) -> list[tuple[float, Row]]:
        """Expected visits per document of each state, from the linear system of the Markov chain."""
        rows = [self._row(state) for state in self.states]
        index = {self.kind(state): number for number, state in enumerate(self.states)}
        flow = np.eye(len(rows))
        for source, row in enumerate(rows):
            for word, p, target in zip(row.words, row.probabilities, row.targets, strict=True):
                if word != END:
                    flow[index[self.kind(target)], source] -= p
        begins = np.zeros(len(rows))
        begins[0] = 1
        visits = np.linalg.solve(flow, begins)
        return list(zip(visits.tolist(), rows, strict=True))


LANGUAGES: Registry[Language] = Registry("language")


def _make_row(transitions: Iterator[Transition]) -> Row:
    possible = [transition for transition in transitions if transition[1] > 0]
    words = [word for word, _, _ in possible]
    probabilities = [p for _, p, _ in possible]
    assert len(set(words)) == len(words), "duplicate next word"
    assert abs(math.fsum(probabilities) - 1) < 1e-9, "probabilities sum to one"
    cumulative = list(accumulate(probabilities))
    cumulative[-1] = 1.0  # despite rounding
    place = {word: number for number, word in enumerate(words)}
    return Row(words, probabilities, [target for _, _, target in possible], cumulative, place)
