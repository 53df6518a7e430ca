"""What a corpus holds, in figures: how much of it there is, how long its documents are, how rich its vocabulary is."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from elman.corpus.corpus import Corpus
from elman.corpus.document import Document

MOST_TYPES = 2_000_000  # different words counted before memory is spared


@dataclass(frozen=True)
class SplitDescription:
    """The figures of one split; lengths are in words between white space."""

    sources: list[str]
    documents: int
    bytes: int
    characters: int
    words: int
    mean_length: float
    median_length: int
    longest: int
    distinct_words: int
    words_seen_once: int
    all_words_counted: bool  # if not, the two figures above are too low
    unseen_in_train: float | None  # the share of this split's words that train does not have
    repairs: list[str]


@dataclass(frozen=True)
class Description:
    """What `elman data describe` shows."""

    unit: str
    carry: bool
    splits: dict[str, SplitDescription]

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self)


def describe(corpus: Corpus) -> Description:
    """Read every split once and count."""
    known: Counter[str] | None = None
    described: dict[str, SplitDescription] = {}
    for split in corpus.splits():
        tally = _Tally()
        tally.read(corpus.documents(split))
        unseen = tally.unseen(known) if known is not None else None
        if split == "train" and tally.all_counted:
            known = tally.types
        described[split] = tally.result(corpus.sources(split), unseen, corpus.repairs_in(split).describe())
    return Description(corpus.unit, corpus.carry, described)


class _Tally:
    def __init__(self) -> None:
        self.bytes = self.characters = 0
        self.lengths: Counter[int] = Counter()
        self.types: Counter[str] = Counter()
        self.all_counted = True

    def read(self, documents: Iterable[Document]) -> None:
        length = 0
        for document in documents:
            self.bytes += document.size
            self.characters += len(document.text)
            words = document.text.split()
            self._count(words)
            length += len(words)
            if not document.continues:
                self.lengths[length] += 1
                length = 0

    def _count(self, words: list[str]) -> None:
        if len(self.types) < MOST_TYPES:
            self.types.update(words)
        else:
            known = [word for word in words if word in self.types]
            self.types.update(known)
            self.all_counted &= len(known) == len(words)

    def unseen(self, known: Counter[str]) -> float | None:
        words = self.types.total()
        new = sum(count for word, count in self.types.items() if word not in known)
        return new / words if words and self.all_counted else None

    def result(self, sources: list[str], unseen: float | None, repairs: list[str]) -> SplitDescription:
        documents = self.lengths.total()
        words = sum(length * count for length, count in self.lengths.items())
        return SplitDescription(
            sources=sources,
            documents=documents,
            bytes=self.bytes,
            characters=self.characters,
            words=words,
            mean_length=words / documents,
            median_length=_median(self.lengths),
            longest=max(self.lengths),
            distinct_words=len(self.types),
            words_seen_once=sum(count == 1 for count in self.types.values()),
            all_words_counted=self.all_counted,
            unseen_in_train=unseen,
            repairs=repairs,
        )


def _median(lengths: Counter[int]) -> int:
    """The length that half of the documents do not exceed."""
    half, passed = lengths.total() / 2, 0
    for length in sorted(lengths):
        passed += lengths[length]
        if passed >= half:
            return length
    raise AssertionError("a corpus without documents is an error earlier")
