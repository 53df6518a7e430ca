"""The set of tags, and which may follow which: `B-PER I-PER` is a name, `O I-PER` is none (Ramshaw & Marcus, 1995)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.corpus.conll import Tagged
from elman.corpus.document import Repairs
from elman.corpus.entities import OUTSIDE, Entity, entities, split_tag
from elman.errors import DataError, nearest

Scheme = Literal["none", "iob1", "bio", "bioes"]
Asked = Scheme | Literal["auto"]
LETTERS: dict[Scheme, set[str]] = {"bioes": set("BIES"), "bio": set("BI"), "iob1": set("BI")}


class Legal(NamedTuple):
    """Which tags may begin a sentence, end it, and follow each other (row, then column)."""

    start: NDArray[np.bool_]
    end: NDArray[np.bool_]
    between: NDArray[np.bool_]


class TagSet:
    """Tags by number. `scheme` says which rows of tags are sound; "none" lets everything follow everything."""

    def __init__(self, names: Iterable[str], scheme: Scheme = "none"):
        self.names = list(names)
        assert len(set(self.names)) == len(self.names), "a tag is there once"
        self.scheme: Scheme = scheme
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, sentences: Iterable[Tagged], scheme: Asked = "auto") -> TagSet:
        """All tags of these sentences, sorted; auto takes the strictest scheme that none of them breaks."""
        pairs = {pair for sentence in sentences for pair in _pairs(sentence.tags)}
        names = sorted({left for left, _ in pairs if left})
        if not names:
            raise DataError("there is no tag to learn", remedy="is the right column named?")
        return cls(names, _scheme(names, pairs) if scheme == "auto" else scheme)

    @classmethod
    def checked(cls, sentences: Callable[[], Iterable[Tagged]], scheme: Asked, repairs: Repairs) -> TagSet:
        """The same, but a scheme that most entities break is an error; entities that break the one most keep to count.

        `sentences` gives them once more at each call.
        """
        found = cls.of(sentences(), scheme)
        if not found.marks_entities or (scheme == "auto" and found.scheme != "none"):
            return found
        tally = _Tally(sentences(), LETTERS)
        fits = tally.best()
        if scheme in LETTERS and tally.broken[scheme] * 2 > tally.entities:
            raise tally.error(scheme, fits)
        kept = fits if scheme == "auto" else scheme
        if kept in LETTERS and tally.broken[kept]:
            kind = f"entity that breaks the scheme {kept}"
            kind += ", so that tags may follow each other freely (data.scheme sets one)" if scheme == "auto" else ""
            first = tally.first[kept]
            repairs.add(kind, first.source, first.line, tally.broken[kept])
        return found

    @property
    def marks_entities(self) -> bool:
        """Whether every tag but O says where in which kind of entity a word is, so that entities can be counted."""
        return _marks_entities(self.names)

    def encode(self, sentence: Tagged) -> NDArray[np.int64]:
        """The numbers of a sentence's tags; a tag that training never saw is an error."""
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag not in self._numbers:
                raise DataError(
                    f"tag {tag!r} of {word!r} was not in the training data{nearest(tag, self.names)}",
                    file=sentence.source or None,
                    line=sentence.line or None,
                    remedy=f"known are {', '.join(self.names[:50])}",
                )
        return np.array([self._numbers[tag] for tag in sentence.tags], dtype=np.int64)

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.names[number] for number in numbers)

    def legal(self) -> Legal:
        """As tables, for a search that finds sound rows only."""
        names, scheme = self.names, self.scheme
        return Legal(
            np.array([_follows(scheme, "", name) for name in names]),
            np.array([_follows(scheme, name, "") for name in names]),
            np.array([[_follows(scheme, name, other) for other in names] for name in names]),
        )

    def is_legal(self, tags: Sequence[str]) -> bool:
        return all(_follows(self.scheme, *pair) for pair in _pairs(tags))


def _pairs(tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Neighbours; before the first and behind the last stands an empty tag."""
    return pairwise(("", *tags, ""))


def _follows(scheme: Scheme, before: str, after: str) -> bool:
    """Whether one tag may stand behind another; the ends of a sentence are as good as O."""
    (left, left_type), (right, right_type) = split_tag(before), split_tag(after)
    inside = left in ("B", "I")
    goes_on = inside and left_type == right_type
    if scheme == "iob1":  # B only parts two names of one type that touch
        return right != "B" or goes_on
    if scheme == "bio":
        return right != "I" or goes_on
    if scheme == "bioes":
        return (right in ("I", "E")) == inside and (goes_on or not inside)
    return True


class _Tally:
    """How many entities break each scheme, and where the first does."""

    def __init__(self, sentences: Iterable[Tagged], schemes: Iterable[Scheme]):
        self.entities = 0
        self.broken: Counter[Scheme] = Counter()
        self.first: dict[Scheme, Tagged] = {}
        for sentence in sentences:
            found = entities(sentence.tags)
            self.entities += len(found)
            for scheme in schemes:
                broken = sum(not _keeps(scheme, sentence.tags, entity) for entity in found)
                if broken:
                    self.broken[scheme] += broken
                    self.first.setdefault(scheme, sentence)

    def best(self) -> Scheme:
        """The scheme that the fewest entities break; none where that is most of them."""
        best = min(LETTERS, key=lambda scheme: self.broken[scheme])
        return best if self.broken[best] * 2 <= self.entities else "none"

    def error(self, scheme: Scheme, fits: Scheme) -> DataError:
        first = self.first[scheme]
        return DataError(
            f"{self.broken[scheme]} of {self.entities} entities break the scheme {scheme!r} of data.scheme; "
            f"{fits!r} fits. The first: {' '.join(first.tags[:20])}",
            file=first.source or None,
            line=first.line or None,
            remedy=f"set data.scheme: {fits}, or auto",
        )


def _keeps(scheme: Scheme, tags: Sequence[str], entity: Entity) -> bool:
    """Whether an entity is spelled as the scheme has it, after what stands before it and with an end."""
    own = tags[entity.start : entity.end]
    before = tags[entity.start - 1] if entity.start else ""
    spelled = all(split_tag(tag)[0] in LETTERS[scheme] for tag in own)
    return spelled and all(_follows(scheme, *pair) for pair in pairwise((before, *own, "")))


def _marks_entities(names: list[str]) -> bool:
    parts = [split_tag(name) for name in names if name != OUTSIDE]
    return bool(parts) and all(kind and role in LETTERS["bioes"] for role, kind in parts)


def _scheme(names: list[str], pairs: set[tuple[str, str]]) -> Scheme:
    if not _marks_entities(names):
        return "none"
    roles = {split_tag(name)[0] for name in names if name != OUTSIDE}
    for scheme, letters in LETTERS.items():
        closed = scheme != "bioes" or roles & {"E", "S"}
        if closed and roles <= letters and all(_follows(scheme, *pair) for pair in pairs):
            return scheme
    return "none"
