"""A Markov chain over letters with a random transition table."""

from collections.abc import Iterator
from string import ascii_letters

from pydantic import Field, model_validator

from elman.corpus.synthetic.language import END, LANGUAGES, Language, State, Transition

LARGEST = 5000  # contexts; the entropy solves a dense linear system of this size


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
