"""What a corpus is made of: documents, and the repairs that reading them took."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Mark(NamedTuple):
    """What a synthetic language knows about one word of a document."""

    word: int  # its place among the document's words
    distance: int  # words between it and what decides its form
    wrong: str  # the form that would be ungrammatical here
    attractors: int = 0  # misleading words in between


@dataclass(frozen=True, slots=True)
class Document:
    """A text without its separator, and where it came from."""

    text: str
    source: str = ""
    line: int = 0
    size: int = 0  # bytes in the source, separator included: what bits per byte divide by
    marks: tuple[Mark, ...] = ()
    continues: bool = False  # the next document goes on where this one stops: no boundary between them


@dataclass(frozen=True, slots=True)
class PairDocument(Document):
    """A source, and what is to be written for it."""

    target: str = ""
    places: tuple[int, ...] = ()  # where in the source each of its first signs is to be looked for, if that is known


@dataclass
class Repairs:
    """Counted, never silent: what was mended or left out while reading, and the first place of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, source: str, line: int, times: int = 1) -> None:
        self.counts[kind] += times
        self.first.setdefault(kind, f"{source}, line {line}" if line else source)

    def merge(self, other: "Repairs") -> None:
        self.counts.update(other.counts)
        for kind, place in other.first.items():
            self.first.setdefault(kind, place)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def describe(self) -> list[str]:
        return [f"{count} × {kind} (first: {self.first[kind]})" for kind, count in sorted(self.counts.items())]
