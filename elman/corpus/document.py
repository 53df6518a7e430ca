"""Documents, and counts of repaired input."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class Mark(NamedTuple):
    """Annotation of a word whose form an earlier word decides, in a synthetic language."""

    word: int  # index of the word in the document
    distance: int  # number of words between it and the word that decides its form
    wrong: str  # the form that would be ungrammatical here
    attractors: int = 0  # misleading words in between


@dataclass(frozen=True, slots=True)
class Document:
    """A text without its separator, and its origin."""

    text: str
    source: str = ""
    line: int = 0
    size: int = 0  # bytes of the text as read, and of its separator: the denominator of bits per byte
    marks: tuple[Mark, ...] = ()
    continues: bool = False  # the next document continues this one, without a boundary


@dataclass(frozen=True, slots=True)
class PairDocument(Document):
    """A source text with its target text."""

    target: str = ""
    places: tuple[int, ...] = ()  # known alignment: source position of each target character


DONE = {  # to what was repaired
    "byte order mark": "removed",
    "NUL byte": "removed",
    "invalid UTF-8": "replaced",
    "unpaired surrogate": "replaced",
    "empty text": "left out",
    "empty document": "left out",
    "empty file": "left out",
}


@dataclass
class Repairs:
    """What was repaired or removed while data was read: counts by kind, with the first occurrence of each."""

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
        done = {kind: f", {DONE[kind]}" if kind in DONE else "" for kind in self.counts}
        found = sorted(self.counts.items())
        return [f"{count} × {kind}{done[kind]} (first: {self.first[kind]})" for kind, count in found]
