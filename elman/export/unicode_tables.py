"""Tables of characters for the C tokenizers, asked of the `tokenizers` library itself: its Unicode version is the one
that counts."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby

from tokenizers import Regex, normalizers, pre_tokenizers

# planes 4 to 13 are empty; what stands in 15 and 16 has no properties
POINTS = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
HANGUL = range(0xAC00, 0xAC00 + 11172)  # syllables are composed by arithmetic
BLOCK = 2048  # code points asked at a time
LOWEST, HIGHEST = 0x334, 0x345  # marks of the lowest and the highest combining class


def classes(*patterns: str) -> dict[int, int]:
    """The class of each code point that one of these patterns of a single character matches: 1 for the first, …"""
    found: dict[int, int] = {}
    for number, pattern in reversed([*enumerate(patterns, 1)]):
        split = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed")
        for first in range(0, len(POINTS), BLOCK):
            here = POINTS[first : first + BLOCK]
            others = {letter for piece, _ in split.pre_tokenize_str("".join(map(chr, here))) for letter in piece}
            found |= {point: number for point in here if chr(point) not in others}
    return found


def change_points(classes: dict[int, int]) -> tuple[list[int], list[int]]:
    """Where the class changes, from 0 on, and to which; 0 for points that have none."""
    starts, values = [0], [classes.get(0, 0)]
    for point in sorted({near for one in classes for near in (one, one + 1)}):
        if classes.get(point, 0) != values[-1]:
            starts.append(point)
            values.append(classes.get(point, 0))
    return starts, values


def word_classes(*patterns: str) -> str:
    starts, values = change_points(classes(*patterns))
    return array("uint32_t", "WORD_STARTS", starts) + array("uint8_t", "WORD_CLASSES", values)


def lower_case() -> str:
    """Code points that lower-casing changes, and what becomes of each: up to three."""
    lower = normalizers.Lowercase().normalize_str
    changed = [(point, lower(chr(point))) for point in POINTS if lower(chr(point)) != chr(point)]
    rows = ["{" + ", ".join(hexadecimal([*map(ord, text)])) + "}" for _, text in changed]
    assert max(len(text) for _, text in changed) <= 3
    upper = array("uint32_t", "UPPER", [point for point, _ in changed])
    return upper + f"constexpr uint32_t LOWER[][3] = {{\n{lines(rows)}\n}};\n"


def normalization(composing: bool) -> str:
    """Decompositions, combining classes and, for NFC, compositions."""
    nfd = normalizers.NFD().normalize_str
    parts = {point: nfd(chr(point)) for point in POINTS if point not in HANGUL}
    parts = {point: text for point, text in parts.items() if text != chr(point)}
    places = [0]
    for text in parts.values():
        places.append(places[-1] + len(text))
    text = array("uint32_t", "COMPOSITES", [*parts]) + array("uint16_t", "PARTS_AT", places)
    text += array("uint32_t", "PARTS", [ord(letter) for part in parts.values() for letter in part])
    starts, orders = change_points(combining_classes())
    text += array("uint32_t", "ORDER_STARTS", starts) + array("uint8_t", "ORDERS", orders)
    return text + compositions(parts) if composing else text


@cache
def combining_classes() -> dict[int, int]:
    """The class of each mark: two marks change places in NFD if the first has the higher class."""
    nfd = normalizers.NFD().normalize_str

    def swapped(pairs: list[tuple[int, int]]) -> list[bool]:
        texts = nfd("".join(f"a{chr(one)}{chr(other)}" for one, other in pairs))
        places = ((texts[3 * n + 1], *pair) for n, pair in enumerate(pairs))
        return [ord(first) == other != one for first, one, other in places]

    alone = [point for point in POINTS if point not in HANGUL and nfd(chr(point)) == chr(point)]
    above, below = swapped([(point, LOWEST) for point in alone]), swapped([(HIGHEST, point) for point in alone])
    marks = [point for point, *changed in zip(alone, above, below, strict=True) if any(changed)]
    examples = {unicodedata.combining(chr(point)): point for point in marks}  # Python's version may know fewer marks
    found: dict[int, int] = {}
    for order, example in examples.items():
        after = swapped([(point, example) for point in marks]), swapped([(example, point) for point in marks])
        found |= {point: order for point, *changed in zip(marks, *after, strict=True) if order and not any(changed)}
    assert len(found) == len(marks)
    return found


def compositions(parts: dict[int, str]) -> str:
    """Pairs of code points that NFC makes one of."""
    nfc = normalizers.NFC().normalize_str
    pairs = {}
    for point, text in parts.items():
        first = nfc(text[:-1])
        if len(text) > 1 and nfc(text) == chr(point) and len(first) == 1:
            pairs[ord(first) << 32 | ord(text[-1])] = point
    ordered = sorted(pairs)
    keys = array("uint64_t", "PAIRS", ordered)
    return keys + array("uint32_t", "COMPOSED", [pairs[key] for key in ordered])


def array(type: str, name: str, numbers: Sequence[int]) -> str:
    return f"constexpr {type} {name}[] = {{\n{lines(hexadecimal(numbers))}\n}};\n"


def hexadecimal(numbers: Iterable[int]) -> list[str]:
    return [f"{number:#x}" if number > 9 else str(number) for number in numbers]


def lines(entries: list[str], width: int = 12) -> str:
    """Separated by commas, so many in a line."""
    rows = groupby(enumerate(entries), lambda entry: entry[0] // width)
    return ",\n".join("    " + ", ".join(text for _, text in row) for _, row in rows)
