"""Splits raw sentences into words by Unicode rules, as of UAX #29, and as the words of training data were split.

A word is letters, marks and digits, with apostrophes and dots inside; an ideograph, and a run of one other sign, are
words too. What training knows as one word stays one (`Mr.`, `e-mail`), and what it has with its apostrophe is split off
(`do n't`, `l' eau`).
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tokenizers import Regex, pre_tokenizers

IDEOGRAPHS = r"\p{Han}\p{Hiragana}"
LETTERS = rf"[\w&&[^{IDEOGRAPHS}]]+"
INSIDE = r"(?:[.'’·]|(?<=\d)[,;:](?=\d))"
WORD = rf"[{IDEOGRAPHS}]|{LETTERS}(?:{INSIDE}{LETTERS})*|((?![\w\s])\X)\1*"
APOSTROPHES = frozenset("'’")
STANDING_ALONE = frozenset([*".,;:?!()", '"', "''", "``", "..."])
LONGEST = 32  # pieces of a string without spaces that are looked up together


def is_split(text: str) -> bool:
    """Whether words are separated by spaces already: punctuation stands alone, which raw text does not have."""
    return not STANDING_ALONE.isdisjoint(text.split())


def split_words(text: str, known: Callable[[str], bool]) -> list[str]:
    """The words of a raw sentence; `known` are those of training data."""
    return [word for part in text.split() for word in ([part] if known(part) else _split(part, known))]


@cache
def _splitter() -> Any:
    return pre_tokenizers.Split(Regex(WORD), behavior="isolated")


def _split(part: str, known: Callable[[str], bool]) -> Iterator[str]:
    """The longest known word at each place, else the next piece."""
    places = [place for _, place in _splitter().pre_tokenize_str(part)]
    at = 0
    while at < len(places):
        start = places[at][0]
        ends = range(min(len(places), at + LONGEST), at + 1, -1)
        end = next((end for end in ends if known(part[start : places[end - 1][1]])), at + 1)
        word, at = part[start : places[end - 1][1]], end
        yield from [word] if known(word) or APOSTROPHES.isdisjoint(word) else _at_apostrophe(word, known)


def _at_apostrophe(word: str, known: Callable[[str], bool]) -> list[str]:
    """Two words where training has one of them with the apostrophe."""
    for cut in range(1, len(word)):
        before, after = word[:cut], word[cut:]
        if any(known(side) and not APOSTROPHES.isdisjoint(side) for side in (before, after)):
            return [before, after]
    return [word]
