"""Holding out by hash: what a unit of text says decides its split, so equal units never part.

A hash is a number from 0 to 1. The low end of that line is for validation, the high end for testing:

    0 ──── valid ────┤ low ──────── train ──────── high ├──── test ──── 1
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import nextafter

from elman.corpus.document import Document, Repairs
from elman.errors import DataError

FEW = 1000  # distinct units up to which splits are balanced one by one; beyond, train is never left empty by chance
KEPT = "not held out, or training would lack its label or tag"


@dataclass(frozen=True)
class HeldOut:
    """Units with a hash below `low` are for validation, from `high` on for testing, the rest for training."""

    low: float
    high: float
    kept: frozenset[float] = frozenset()
    """Hashes that stay in training wherever they lie."""

    def split(self, document: Document) -> str:
        place = position(document.text)
        if place is None or place in self.kept:
            return "train"
        return "valid" if place < self.low else "test" if place >= self.high else "train"

    def only(self, split: str, documents: Iterable[Document], repairs: Repairs | None = None) -> Iterator[Document]:
        """The documents of one split. A piece is followed by a boundary where its next piece belongs to another."""
        waiting: Document | None = None
        for document in documents:
            if repairs is not None and self.kept and position(document.text) in self.kept:
                repairs.add(KEPT, document.source, document.line)
            mine = self.split(document) == split
            if waiting:
                yield waiting if mine or not waiting.continues else replace(waiting, continues=False)
            waiting = document if mine else None
        if waiting:
            yield waiting

    def keeping(self, units: Iterable[Document], names: Callable[[Document], Iterable[str]]) -> "HeldOut":
        """The same, but of each name (a label, a tag) that training would lack, one unit stays there."""
        there: set[str] = set()
        lowest: dict[str, float] = {}  # of names that were only seen elsewhere so far
        for unit in units:
            place, found = position(unit.text), {*names(unit)}
            if place is None or self.split(unit) == "train":
                there |= found
            else:
                lowest |= {name: min(place, lowest.get(name, 1.0)) for name in found}
        return replace(self, kept=frozenset(place for name, place in lowest.items() if name not in there))


def position(text: str) -> float | None:
    """Where a text falls between 0 and 1; nowhere if it is blank: empty lines carry nothing to be tested on."""
    words = text.strip()
    if not words:
        return None
    return (int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "big") >> 11) / 2**53


def hold_out(units: Iterable[Document], valid_fraction: float, test_fraction: float, where: str) -> HeldOut:
    """Cut by the fractions; if that leaves a split empty, at the units with the lowest and the highest hash."""
    natural = HeldOut(valid_fraction, 1 - test_fraction)
    needed = {"train"} | ({"valid"} if valid_fraction else set()) | ({"test"} if test_fraction else set())
    seen: set[str] = set()
    places: set[float] = set()  # all while they are few, then no more than the two ends
    lowest, highest = 1.0, 0.0
    for unit in units:
        place = position(unit.text)
        if place is None:
            continue
        seen.add(natural.split(unit))
        if seen == needed:
            return natural
        lowest, highest = min(lowest, place), max(highest, place)
        if len(places) <= FEW:
            places.add(place)
    if len(places) <= FEW:
        return _balance(sorted(places), natural, needed, where)
    low = natural.low if "valid" in seen or not valid_fraction else nextafter(lowest, 1)
    high = natural.high if "test" in seen or not test_fraction else highest
    return HeldOut(low, high)


def _balance(places: list[float], natural: HeldOut, needed: set[str], where: str) -> HeldOut:
    """At least one unit for every split that is needed."""
    if not places:
        raise DataError("there is no text in it", file=where)
    if len(places) < len(needed):
        raise DataError(
            f"{len(places)} different documents or passages are too few to hold some out",
            file=where,
            remedy="give data.valid (and data.test) files of their own, or set data.valid_fraction: 0",
        )
    valid = max("valid" in needed, sum(place < natural.low for place in places))
    test = max("test" in needed, sum(place >= natural.high for place in places))
    while valid + test >= len(places):
        valid, test = (valid - 1, test) if valid >= test else (valid, test - 1)
    return HeldOut(nextafter(places[valid - 1], 1) if valid else 0.0, places[-test] if test else 1.0)
