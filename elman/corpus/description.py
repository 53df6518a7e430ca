"""Statistics of a corpus: size, document lengths and vocabulary."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

from elman.corpus.corpus import Corpus
from elman.corpus.document import Document

MAX_TYPES = 2_000_000  # distinct words that are counted, to bound memory


@dataclass(frozen=True)
class SplitDescription:
    """Statistics of one split; lengths in whitespace-separated words."""

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
    all_words_counted: bool  # if not, the two counts above are lower bounds
    unseen_in_train: float | None  # share of this split's words that are not in train
    repairs: list[str]


@dataclass(frozen=True)
class Description:
    """The output of `elman data describe`."""

    unit: str
    carry: bool
    splits: dict[str, SplitDescription]

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def describe(corpus: Corpus) -> Description:
    """Reads every split once and counts."""
    known: Counter[str] | None = None
    described: dict[str, SplitDescription] = {}
    for split in corpus.splits():
        tally = _Tally(corpus.documents(split))
        described[split] = tally.result(corpus.sources(split), known, corpus.repairs_in(split).describe())
        if split == "train" and tally.all_counted:
            known = tally.types
    return Description(corpus.unit, corpus.carry, described)


class _Tally:
    """Counts of one split."""

    def __init__(self, documents: Iterable[Document]):
        self.bytes = self.characters = length = 0
        self.lengths: Counter[int] = Counter()
        self.types: Counter[str] = Counter()
        self.all_counted = True
        for document in documents:
            self.bytes += document.size
            self.characters += len(document.text)
            words = document.text.split()
            length += len(words)
            if not document.continues:
                self.lengths[length] += 1
                length = 0
            if len(self.types) >= MAX_TYPES:
                seen = [word for word in words if word in self.types]
                self.all_counted &= len(seen) == len(words)
                words = seen
            self.types.update(words)

    def result(self, sources: list[str], known: Counter[str] | None, repairs: list[str]) -> SplitDescription:
        documents = self.lengths.total()
        words = sum(length * count for length, count in self.lengths.items())
        unseen: float | None = None
        if known is not None and words and self.all_counted:
            unseen = sum(count for word, count in self.types.items() if word not in known) / words
        return SplitDescription(
            sources=sources,
            documents=documents,
            bytes=self.bytes,
            characters=self.characters,
            words=words,
            mean_length=words / documents,
            median_length=median_low(self.lengths.elements()),
            longest=max(self.lengths),
            distinct_words=len(self.types),
            words_seen_once=sum(count == 1 for count in self.types.values()),
            all_words_counted=self.all_counted,
            unseen_in_train=unseen,
            repairs=repairs,
        )
