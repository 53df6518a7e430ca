"""Statistics of a corpus: size, document lengths and vocabulary."""

from collections import Counter
from dataclasses import dataclass
from statistics import median_low

from elman.corpus.corpus import Corpus
from elman.corpus.document import PairDocument, Split
from elman.jsonable import Result

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
    mean_target_length: float | None  # of pairs
    longest_target: int | None
    classes: dict[str, int]  # how often each label or tag occurs
    repairs: list[str]


@dataclass(frozen=True)
class Description(Result):
    """The output of `elman data describe`."""

    unit: str
    carry: bool
    splits: dict[str, SplitDescription]


def describe(corpus: Corpus) -> Description:
    """Reads every split once and counts."""
    known: Counter[str] | None = None
    described: dict[str, SplitDescription] = {}
    for split in corpus.splits():
        described[split], types = _describe_split(corpus, split, known)
        if split == "train":
            known = types
    return Description(corpus.unit, corpus.carry, described)


def _describe_split(
    corpus: Corpus, split: Split, known: Counter[str] | None
) -> tuple[SplitDescription, Counter[str] | None]:
    """Also the counts of its words, if all were counted; `known` are those of train."""
    size = characters = length = 0
    lengths, types, all_counted = Counter[int](), Counter[str](), True
    targets, classes = list[int](), Counter[str]()
    for document in corpus.documents(split):
        size += document.size or len(document.text.encode()) + 1  # labelled texts have no size of their own
        classes.update(corpus.names(document) if corpus.names else ())
        targets += [len(document.target.split())] if isinstance(document, PairDocument) else []
        characters += len(document.text)
        words = document.text.split()
        length += len(words)
        if not document.continues:
            lengths[length] += 1
            length = 0
        if len(types) >= MAX_TYPES:
            seen = [word for word in words if word in types]
            all_counted &= len(seen) == len(words)
            words = seen
        types.update(words)
    total = sum(length * count for length, count in lengths.items())
    unseen: float | None = None
    if known is not None and total and all_counted:
        unseen = sum(count for word, count in types.items() if word not in known) / total
    found = SplitDescription(
        sources=corpus.sources(split),
        documents=lengths.total(),
        bytes=size,
        characters=characters,
        words=total,
        mean_length=total / lengths.total(),
        median_length=median_low(lengths.elements()),
        longest=max(lengths),
        distinct_words=len(types),
        words_seen_once=sum(count == 1 for count in types.values()),
        all_words_counted=all_counted,
        unseen_in_train=unseen,
        mean_target_length=sum(targets) / len(targets) if targets else None,
        longest_target=max(targets, default=None),
        classes=dict(classes.most_common()),
        repairs=corpus.repairs_in(split).describe(),
    )
    return found, types if all_counted else None
