"""Hash-based split: the hash of a text decides its split, so equal texts are always in the same one.

A hash is a number in [0, 1). The low end is for validation, the high end for testing:

0 ──── valid ────┤ low ──────── train ──────── high ├──── test ──── 1
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import nextafter

from elman.corpus.document import Document, Repairs
from elman.errors import DataError

FEW = 1000  # up to this many distinct units, splits are balanced exactly; beyond, train is never empty by chance
KEPT = "kept in training, which would lack its label or tag"


@dataclass(frozen=True)
class HashSplit:
    """Texts with a hash below `low` are for validation, from `high` on for testing, the rest for training."""

    low: float
    high: float
    kept: frozenset[float] = frozenset()
    """Hashes that stay in training regardless."""

    def split(self, document: Document) -> str:
        hash_ = hash_position(document.text)
        if hash_ is None or hash_ in self.kept:
            return "train"
        return "valid" if hash_ < self.low else "test" if hash_ >= self.high else "train"

    def only(self, split: str, documents: Iterable[Document], repairs: Repairs | None = None) -> Iterator[Document]:
        """The documents of one split. A chunk ends with a document boundary if its continuation is in another split."""
        waiting: Document | None = None
        for document in documents:
            if repairs is not None and self.kept and hash_position(document.text) in self.kept:
                repairs.add(KEPT, document.source, document.line)
            own = self.split(document) == split
            if waiting:
                yield waiting if own or not waiting.continues else replace(waiting, continues=False)
            waiting = document if own else None
        if waiting:
            yield waiting

    def keeping(self, units: Iterable[Document], names: Callable[[Document], Iterable[str]]) -> "HashSplit":
        """The split that keeps at least one text of each name (label, tag) in training."""
        there: set[str] = set()
        lowest: dict[str, float] = {}  # smallest hash of each name that was seen outside of training only
        for unit in units:
            hash_, found = hash_position(unit.text), {*names(unit)}
            if hash_ is None or self.split(unit) == "train":
                there |= found
            else:
                lowest |= {name: min(hash_, lowest.get(name, 1.0)) for name in found}
        return replace(self, kept=frozenset(hash_ for name, hash_ in lowest.items() if name not in there))


def hash_position(text: str) -> float | None:
    """Hash of a text in [0, 1); None for blank text, which is never held out."""
    words = text.strip()
    if not words:
        return None
    return (int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "big") >> 11) / 2**53


def make_hash_split(units: Iterable[Document], valid_fraction: float, test_fraction: float, where: str) -> HashSplit:
    """Splits by the fractions; if that leaves a split empty, at the texts with the lowest and highest hash."""
    natural = HashSplit(valid_fraction, 1 - test_fraction)
    needed = {"train"} | ({"valid"} if valid_fraction else set()) | ({"test"} if test_fraction else set())
    seen: set[str] = set()
    hashes: set[float] = set()  # all hashes, up to FEW
    lowest, highest = 1.0, 0.0
    for unit in units:
        hash_ = hash_position(unit.text)
        if hash_ is None:
            continue
        seen.add(natural.split(unit))
        if seen == needed:
            return natural
        lowest, highest = min(lowest, hash_), max(highest, hash_)
        if len(hashes) <= FEW:
            hashes.add(hash_)
    if len(hashes) <= FEW:
        return _balance(sorted(hashes), natural, needed, where)
    low = natural.low if "valid" in seen or not valid_fraction else nextafter(lowest, 1)
    high = natural.high if "test" in seen or not test_fraction else highest
    return HashSplit(low, high)


def _balance(hashes: list[float], natural: HashSplit, needed: set[str], where: str) -> HashSplit:
    """Ensures at least one text in every needed split."""
    if not hashes:
        raise DataError("contains no text", file=where)
    if len(hashes) < len(needed):
        reason = f"{len(hashes)} distinct documents or passages are too few to hold some out"
        remedy = "set data.valid (and data.test) to separate files, or data.valid_fraction to 0"
        raise DataError(reason, file=where, remedy=remedy)
    valid = max("valid" in needed, sum(hash_ < natural.low for hash_ in hashes))
    test = max("test" in needed, sum(hash_ >= natural.high for hash_ in hashes))
    while valid + test >= len(hashes):
        valid, test = (valid - 1, test) if valid >= test else (valid, test - 1)
    return HashSplit(nextafter(hashes[valid - 1], 1) if valid else 0.0, hashes[-test] if test else 1.0)
