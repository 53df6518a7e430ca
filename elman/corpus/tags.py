"""Tags of words: entities, tag sets and legal transitions.

`B-PER I-PER O` is an entity of two words; `O I-PER` is invalid (Ramshaw & Marcus, 1995). The CoNLL scorer (conlleval,
Tjong Kim Sang, 2004) accepts any tag sequence: an `I-` that does not continue an entity of its type starts one, like
`B-`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.corpus.document import Repairs
from elman.corpus.tagged_corpus import TaggedSentence
from elman.errors import DataError, nearest

OUTSIDE = "O"
ROLES = {"B": "B", "I": "I", "E": "E", "S": "S", "M": "I", "L": "E", "U": "S"}  # BMES and BILOU letters
Scheme = Literal["none", "iob1", "bio", "bioes"]
SchemeSetting = Scheme | Literal["auto"]
LETTERS: dict[Scheme, set[str]] = {"bioes": set("BIES"), "bio": set("BI"), "iob1": set("BI")}


class Entity(NamedTuple):
    """Words `start` to `end` (exclusive)."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Splits `B-PER` into role and type; a tag without type, such as O, has an empty one."""
    role, dash, type_ = tag.partition("-")
    return (ROLES.get(role, role), type_) if dash else (tag, "")


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence by the rules of the CoNLL scorer; E and S are treated as in seqeval."""
    result: list[Entity] = []
    start: int | None = None
    before, before_type = OUTSIDE, ""
    for place, (role, type_) in enumerate([*map(split_tag, tags), (OUTSIDE, "")]):
        ends = before in ("E", "S") or (before in ("B", "I") and role in ("B", "S", OUTSIDE))
        starts = role in ("B", "S") or (before in ("E", "S", OUTSIDE) and role in ("E", "I"))
        if type_ != before_type:  # another type ends an entity and starts one, whatever the roles
            ends, starts = ends or before not in (OUTSIDE, "."), starts or role not in (OUTSIDE, ".")
        if start is not None and ends:
            result.append(Entity(before_type, start, place))
            start = None
        if starts:
            start = place
        before, before_type = role, type_
    return result


class LegalTransitions(NamedTuple):
    """Tags that may start a sentence, end it, and follow each other (row, then column)."""

    start: NDArray[np.bool_]
    end: NDArray[np.bool_]
    between: NDArray[np.bool_]


class TagSet:
    """Tags by index. `scheme` defines legal transitions; with "none" all are legal."""

    def __init__(self, names: Iterable[str], scheme: Scheme = "none"):
        self.names = list(names)
        assert len(set(self.names)) == len(self.names), "duplicate tags"
        self.scheme: Scheme = scheme
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, sentences: Iterable[TaggedSentence], scheme: SchemeSetting = "auto") -> TagSet:
        """All tags of these sentences, sorted; auto takes the strictest scheme without violations."""
        pairs = {pair for sentence in sentences for pair in _pairs(sentence.tags)}
        found = cls(sorted({left for left, _ in pairs if left}))
        if not found.names:
            raise DataError("no tags found", remedy="name its column: --columns WORD,TAG")
        return cls(found.names, found._strictest(pairs) if scheme == "auto" else scheme)

    @classmethod
    def checked(
        cls, sentences: Callable[[], Iterable[TaggedSentence]], scheme: SchemeSetting, repairs: Repairs
    ) -> TagSet:
        """Like `of`, but a scheme that most entities violate is an error, and violations of an accepted one are
        counted.

        `sentences` returns a new iterator at each call.
        """
        found = cls.of(sentences(), scheme)
        if not found.marks_entities or (scheme == "auto" and found.scheme != "none"):
            return found
        total, violations, examples = _violations(sentences())
        best = min(LETTERS, key=lambda one: violations[one])
        fits: Scheme = best if violations[best] * 2 <= total else "none"
        kept = fits if scheme == "auto" else scheme
        if not violations[kept]:
            return found
        first = examples[kept]
        if scheme != "auto" and violations[kept] * 2 > total:
            wrong = f"{violations[kept]} of {total} entities violate the scheme {scheme!r} of data.scheme"
            reason = f"{wrong}; {fits!r} fits. The first: {' '.join(first.tags[:20])}"
            remedy = f"set data.scheme: {fits}, or auto"
            raise DataError(reason, file=first.source or None, line=first.line or None, remedy=remedy)
        kind = f"entity that violates the scheme {kept}"
        kind += ", so all tag transitions are allowed (data.scheme sets a scheme)" if scheme == "auto" else ""
        repairs.add(kind, first.source, first.line, violations[kept])
        return found

    def _strictest(self, pairs: set[tuple[str, str]]) -> Scheme:
        """The strictest scheme that none of these adjacent tags violates."""
        if not self.marks_entities:
            return "none"
        roles = {split_tag(name)[0] for name in self.names if name != OUTSIDE}
        for scheme, letters in LETTERS.items():
            closed = scheme != "bioes" or roles & {"E", "S"}
            if closed and roles <= letters and all(_follows(scheme, *pair) for pair in pairs):
                return scheme
        return "none"

    @property
    def marks_entities(self) -> bool:
        """Whether every tag but O has a role and a type, so that entities can be evaluated."""
        parts = [split_tag(name) for name in self.names if name != OUTSIDE]
        return bool(parts) and all(kind and role in LETTERS["bioes"] for role, kind in parts)

    def encode(self, sentence: TaggedSentence) -> NDArray[np.int64]:
        """The indices of a sentence's tags; an unknown tag is an error."""
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag not in self._numbers:
                reason = f"tag {tag!r} of {word!r} was not in the training data{nearest(tag, self.names)}"
                remedy = f"known are {', '.join(self.names[:50])}"
                raise DataError(reason, file=sentence.source or None, line=sentence.line or None, remedy=remedy)
        return np.array([self._numbers[tag] for tag in sentence.tags], dtype=np.int64)

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.names[number] for number in numbers)

    def legal(self) -> LegalTransitions:
        """Tables of legal transitions, for decoding."""
        names, scheme = self.names, self.scheme
        return LegalTransitions(
            np.array([_follows(scheme, "", name) for name in names]),
            np.array([_follows(scheme, name, "") for name in names]),
            np.array([[_follows(scheme, name, other) for other in names] for name in names]),
        )

    def is_legal(self, tags: Sequence[str]) -> bool:
        return all(_follows(self.scheme, *pair) for pair in _pairs(tags))


def _pairs(tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Adjacent tags; an empty tag stands for the start and the end."""
    return pairwise(("", *tags, ""))


def _follows(scheme: Scheme, before: str, after: str) -> bool:
    """Whether one tag may follow another; sentence boundaries count as O."""
    (left, left_type), (right, right_type) = split_tag(before), split_tag(after)
    inside = left in ("B", "I")
    continues = inside and left_type == right_type
    if scheme == "iob1":  # B only separates adjacent entities of the same type
        return right != "B" or continues
    if scheme == "bio":
        return right != "I" or continues
    if scheme == "bioes":
        return (right in ("I", "E")) == inside and (continues or not inside)
    return True


def _violations(sentences: Iterable[TaggedSentence]) -> tuple[int, Counter[Scheme], dict[Scheme, TaggedSentence]]:
    """The number of entities, of those that violate each scheme, and the first sentence with one."""
    total, violations, first = 0, Counter[Scheme](), dict[Scheme, TaggedSentence]()
    for sentence in sentences:
        found = entities(sentence.tags)
        total += len(found)
        for scheme in LETTERS:
            wrong = sum(not _obeys(scheme, sentence.tags, entity) for entity in found)
            if wrong:
                violations[scheme] += wrong
                first.setdefault(scheme, sentence)
    return total, violations, first


def _obeys(scheme: Scheme, tags: Sequence[str], entity: Entity) -> bool:
    """Whether an entity follows the scheme, given the tag before it and the end after it."""
    own = tags[entity.start : entity.end]
    before = tags[entity.start - 1] if entity.start else ""
    valid_letters = all(split_tag(tag)[0] in LETTERS[scheme] for tag in own)
    return valid_letters and all(_follows(scheme, *pair) for pair in pairwise((before, *own, "")))
