"""The probability of a text given its tokens, for tokenizers that drop spacing, capitals or Unicode forms.

A text is compared with what its tokens stand for, word by word and gap by gap. Each word and gap is written in one of a
few ways: the same, with a capital, or spelled out byte by byte. Probabilities of ways are counts from training text,
plus one half (Krichevsky and Trofimov, 1981). Those of all texts with the same tokens sum to at most 1.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tokenizers import normalizers

SPELLING = math.log(257)  # nats per byte, or end mark, of what is spelled out
SAME, SPELLED, MIXED = "same", "spelled", "mixed"
APART, GLUED = "apart", "glued"
UNFITTED = 1000  # times that the usual way counts as seen, where nothing was counted
GAPS, LONGEST_GAP = 32, 16  # of different gaps the most frequent and short ones are counted; others are spelled
_BETWEEN = re.compile(r"\S+")
_LETTER = re.compile(r"[^\W\d_]")
CHANGES: dict[str, Callable[[str], str]] = {
    "capital": lambda word: _LETTER.sub(lambda letter: letter[0].upper(), word, count=1),
    "capitals": str.upper,
    "nfc": normalizers.NFC().normalize_str,
    "nfd": normalizers.NFD().normalize_str,
}
WAYS = {  # of each kind, the usual way first
    "text": (SAME, SPELLED),
    "gap": (SAME, SPELLED, "\n"),
    "word": (SAME, SPELLED, MIXED, *CHANGES),
    "unknown": ("other", "literal"),
    "border": (APART, GLUED),
}


class Way(NamedTuple):
    """How a word or gap is written: `way` among those of its kind, and the letters that are needed to spell it."""

    kind: str
    way: str
    written: str = ""


def spelled(text: str) -> float:
    """Nats of a text byte by byte, its end included: of 257 symbols that are equally probable."""
    return SPELLING * (len(text.encode("utf-8", "surrogatepass")) + 1)


def ways(plain: str, text: str, rewritten: bool) -> Counter[Way]:
    """How each gap of a text is written, and each word if words may be `rewritten`, given what its tokens stand for."""
    words, expected = text.split(), plain.split()
    if len(words) != len(expected):
        return Counter([Way("text", SPELLED, text)])
    found = Counter([Way("text", SAME)])
    if plain == text and not rewritten:  # the most common case, made fast
        return found + Counter(
            {Way("gap start", SAME): 1, Way("gap", SAME): len(words) - 1, Way("gap end", SAME): bool(words)}
        )
    first, *inner = zip(_BETWEEN.split(plain), _BETWEEN.split(text), strict=True)
    found[_gap("gap start", *first)] += 1
    if inner:
        found[_gap("gap end", *inner.pop())] += 1
    for pair, times in Counter(inner).items():
        found[_gap("gap", *pair)] += times
    if rewritten:
        starts = (before[-1] in ".!?" for before in [".", *expected])
        for triple, times in Counter(zip(starts, expected, words)).items():  # noqa: B905  (starts has one more)
            found[_word(*triple)] += times
    return found


def glued(plain: str, text: str) -> tuple[str, list[list[str]]] | None:
    """What the tokens stand for, without the gaps between pieces of one word of the text, and these pieces of each
    word; None if the words are not made of as many letters."""
    pieces, gaps, words = plain.split(), _BETWEEN.split(plain), text.split()
    if len(pieces) == len(words):
        return plain, [[piece] for piece in pieces]
    ends = {0, *accumulate(map(len, words))}
    groups: list[list[str]] = []
    without, end = "", 0
    for gap, piece in zip(gaps, pieces, strict=False):  # a gap before each, and a last one
        if end in ends:
            groups.append([])
            without += gap
        groups[-1].append(piece)
        without, end = without + piece, end + len(piece)
    if [len("".join(group)) for group in groups] != [len(word) for word in words]:
        return None
    return without + gaps[-1], groups


def borders(pieces: Iterable[Sequence[str]]) -> Counter[Way]:
    """Whether there is a gap between neighbours, given which marks of punctuation they are, for the pieces of words."""
    found: Counter[Way] = Counter()
    before: Sequence[str] = ()
    for parts in pieces:
        found.update(Way(f"border {one} {other}", GLUED) for one, other in pairwise(parts))
        if before:
            found[Way(f"border {before[-1]} {parts[0]}", APART)] += 1
        before = parts
    return found


def mark(piece: str) -> str:
    """A mark of punctuation or a symbol itself, `w` for every word."""
    return piece if len(piece) == 1 and not piece.isalnum() else "w"


def _gap(kind: str, plain: str, gap: str) -> Way:
    return Way(kind, SAME) if gap == plain else Way(kind, gap, gap)


def _word(start: bool, plain: str, word: str) -> Way:
    kind = "word wide" if not plain.isascii() else "word uncased" if plain.upper() == plain else "word"
    kind += " start" if start else ""
    if word == plain:
        return Way(kind, SAME)
    for way, change in CHANGES.items():
        if change(plain) == word:
            return Way(kind, way)
    mixed = len(word) == len(plain) and all(
        letter in (small, small.upper()) for small, letter in zip(plain, word, strict=True)
    )
    return Way(kind, MIXED if mixed else SPELLED, word)


class Surface:
    """Counts of ways by kind, and the probabilities that they give."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]] | None = None):
        self.counts = {kind: dict(table) for kind, table in (counts or {}).items()}
        self._known: dict[Way, float] = {}

    def fit(self, texts: Iterable[Counter[Way]]) -> None:
        """Counts the ways of the words and gaps of training texts."""
        total: Counter[tuple[str, str]] = Counter()
        for found in texts:
            for (kind, way, _), times in found.items():
                total[kind, way] += times
        self.counts, self._known = {}, {}
        for (kind, way), times in sorted(total.items(), key=lambda item: (-item[1], item[0])):
            table = self.counts.setdefault(kind, {})
            listed = not kind.startswith("gap") or (len(table) < GAPS and len(way) <= LONGEST_GAP)
            table[way if listed else SPELLED] = table.get(way if listed else SPELLED, 0) + times

    def nats(self, found: Mapping[Way, int]) -> float:
        return sum(times * self._nats(way) for way, times in found.items())

    def _nats(self, found: Way) -> float:
        known = self._known.get(found)
        if known is None:
            known = self._known[found] = self._nats_of(*found)
            if len(self._known) > 2**17:  # of spelled words there is no end
                self._known.clear()
        return known

    def _nats_of(self, kind: str, way: str, written: str) -> float:
        usual = WAYS[kind.split(maxsplit=1)[0]]
        counts = self.counts.get(kind) or ({usual[0]: UNFITTED} if _has_usual(kind) else {})
        every = {*usual, *counts}
        way = way if way in every else SPELLED
        spelling = {SPELLED: spelled(written), MIXED: len(written) * math.log(2)}
        chance = (counts.get(way, 0) + 0.5) / (sum(counts.values()) + 0.5 * len(every))
        return spelling.get(way, 0.0) - math.log(chance)


def _has_usual(kind: str) -> bool:
    """Whether one way is expected without having been counted: not around marks of punctuation."""
    return not kind.startswith("border") or kind == "border w w"
