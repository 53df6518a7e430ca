"""Formal languages: a Markov chain over letters, and nested brackets (a Dyck language of bounded depth)."""

from collections.abc import Iterator, Sequence
from string import ascii_letters

from pydantic import Field, model_validator

from elman.corpus.document import Mark
from elman.corpus.synthetic.language import END, LANGUAGES, Language, State, Transition

LARGEST = 5000  # contexts; the entropy solves a dense linear system of this size
OPENING, CLOSING = "([{<", ")]}>"
LONGEST = 10_000  # maximum mean number of brackets per document; it grows exponentially with depth


@LANGUAGES.register("markov")
class Markov(Language):
    """Letters that depend on the last few letters: an n-gram model fits it perfectly."""

    start: State = ""

    class Config(Language.Config):
        order: int = Field(default=2, ge=1, le=12)
        """Order of the chain."""
        symbols: int = Field(default=16, ge=1, le=len(ascii_letters))
        """Number of distinct symbols."""
        concentration: float = Field(default=0.2, ge=0.01, le=1000)
        """Concentration of the Dirichlet distribution of each row: small values make few symbols likely."""
        mean_length: float = Field(default=32, ge=1, le=10_000)
        """Mean length of a document (geometric, at least 1)."""

        @model_validator(mode="after")
        def _fits(self) -> "Markov.Config":
            if self.contexts > LARGEST:
                raise ValueError(f"{self.contexts} contexts; lower order or symbols, at most {LARGEST}")
            return self

        @property
        def contexts(self) -> int:
            return sum(self.symbols**length for length in range(self.order + 1))

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.letters = ascii_letters[: config.symbols]
        self.table = self.random(0).dirichlet([config.concentration] * config.symbols, size=config.contexts)

    def transitions(self, state: State) -> Iterator[Transition]:
        """A state is the string of the last symbols, shorter at the start of a document."""
        assert isinstance(state, str)
        stop = 1 / self.config.mean_length if state else 0.0
        yield END, stop, state
        for letter, p in zip(self.letters, self.table[self._number(state)].tolist(), strict=True):
            yield letter, (1 - stop) * p, (state + letter)[-self.config.order :]

    def _number(self, context: str) -> int:
        """Index of a context in the table, shortest contexts first."""
        number = 0
        for letter in context:
            number = number * self.config.symbols + self.letters.index(letter) + 1
        return number


@LANGUAGES.register("brackets")
class Brackets(Language):
    """Nested brackets of several types: needs a stack."""

    start: State = None  # unlike "" (all closed), it cannot end: no document is empty

    class Config(Language.Config):
        pairs: int = Field(default=3, ge=1, le=len(OPENING))
        """Number of bracket types, equally likely."""
        max_depth: int = Field(default=6, ge=1, le=100)
        """Maximum nesting depth."""
        opening: float = Field(default=0.5, ge=0, le=0.95)
        """Probability to open another bracket rather than close one, inside a bracket."""
        mean_groups: float = Field(default=2, ge=1, le=10_000)
        """Mean number of outermost brackets of a document (geometric, at least 1)."""

        @model_validator(mode="after")
        def _ends(self) -> "Brackets.Config":
            inside = self.opening / (1 - self.opening)  # expected brackets directly inside one
            words = 2 * self.mean_groups * sum(inside**depth for depth in range(self.max_depth))
            if words > LONGEST:
                raise ValueError(
                    f"documents of {words:.3g} words on average; lower opening or max_depth, at most {LONGEST}"
                )
            return self

    config: Config

    @property
    def vocabulary(self) -> list[str]:
        return sorted(OPENING[: self.config.pairs] + CLOSING[: self.config.pairs])

    def kind(self, state: State) -> State:
        return len(state) if isinstance(state, str) else state  # probabilities depend on the depth only

    def transitions(self, state: State) -> Iterator[Transition]:
        """A state is the string of open brackets."""
        if not state:
            stop = 0.0 if state is None else 1 / self.config.mean_groups
            yield END, stop, state
            yield from self._open("", 1 - stop)
            return
        assert isinstance(state, str)
        further = self.config.opening if len(state) < self.config.max_depth else 0.0
        yield CLOSING[OPENING.index(state[-1])], 1 - further, state[:-1]
        yield from self._open(state, further)

    def _open(self, state: str, chance: float) -> Iterator[Transition]:
        for bracket in OPENING[: self.config.pairs]:
            yield bracket, chance / self.config.pairs, state + bracket

    def marks(self, words: Sequence[str], states: Sequence[State]) -> tuple[Mark, ...]:
        """Each closing bracket, against the next type; attractors are brackets of that type in between."""
        marks: list[Mark] = []
        opened: list[int] = []
        for place, word in enumerate(words):
            if word in OPENING:
                opened.append(place)
                continue
            begin = opened.pop()
            other = (CLOSING.index(word) + 1) % self.config.pairs
            if CLOSING[other] != word:
                attractors = words[begin:place].count(OPENING[other])
                marks.append(Mark(place, place - begin - 1, CLOSING[other], attractors))
        return tuple(marks)
