"""Random changes of valid inputs: flipped bits, splices, tokens with a meaning, numbers of extreme size, and for JSON
changed values, types and keys."""

import random
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = ["0", "-1", "1", "2", "-0.0", "0.5", "1e5", "1e308", "1e999", "-1e999", "NaN", "Infinity", ".inf", ".nan"]
NUMBERS += ["7fffffff", "65536", str(2**31), str(2**32), str(2**63 - 1), str(2**63), str(-(2**63) - 1), str(10**30)]
NUMBERS += ["9" * 5000, "1:30", "0x10", "1_000", "2024-01-01", "+3", "٣"]
TOKENS = [
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\n\n",
    b'"',
    b"'",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\t",
    b",",
]
TOKENS += [b"{", b"}", b"[" * 3000, b"]", b"[]", b"{}", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!set ", b"---\n", b"#"]
TOKENS += [
    b"\\ud800",
    b"\\u0000",
    b"null",
    b"true",
    b"~",
    b"\xc2\x85",
    "\u2028".encode(),
    "é".encode(),
    b"\x1b[2J",
    b"%s",
]
TOKENS += [
    b"<eos>",
    b"<unk>",
    b"<s>",
    b"</s>",
    b"\\end\\",
    b"\\1-grams:\n",
    b"ngram 9=9\n",
    b"-DOCSTART-",
    b"__label__",
]
LONGEST = 2**16  # bytes of an input that is repeated


def mutate(seed: bytes, dice: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """A copy with one to six changes; `others` are inputs of which pieces are spliced in."""
    data = bytearray(seed)
    for _ in range(dice.choice([1, 1, 2, 6])):
        at = dice.randrange(len(data) + 1)
        CHANGES[dice.randrange(len(CHANGES))](data, at, dice, others)
    return bytes(data)


def _flip(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    if at < len(data):
        data[at] ^= 1 << dice.randrange(8)


def _delete(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    del data[at : at + dice.choice([1, 2, dice.randint(1, 40)])]


def _cut(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    del data[at:]


def _token(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    data[at:at] = dice.choice(TOKENS)


def _noise(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    size = dice.randint(1, 8)
    data[at : at + dice.choice([0, size])] = dice.randbytes(size)


def _number(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    found = list(NUMBER.finditer(data, max(0, at - 200), at + 200))
    start, end = dice.choice(found).span() if found else (at, at)
    data[start:end] = dice.choice(NUMBERS).encode()


def _repeat(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    piece = data[at : at + dice.randint(1, 40)]
    data[at:at] = piece * min(dice.choice([1, 1, 2, 1000]), LONGEST // max(1, len(piece)))


def _splice(data: bytearray, at: int, dice: random.Random, others: Sequence[bytes]) -> None:
    other = dice.choice(others) if others else bytes(data)
    start = dice.randrange(len(other) + 1)
    data[at : at + dice.choice([0, 0, 20])] = other[start : start + dice.randint(1, 60)]


CHANGES = (_flip, _flip, _delete, _cut, _token, _token, _noise, _number, _number, _repeat, _splice)

VALUES: list[Any] = [None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, float("nan")]
VALUES += [
    float("inf"),
    "",
    "a",
    "0",
    "é\u2028\ud800",
    "x" * 5000,
    "null",
    [],
    {},
    [[]],
    {"": None},
    [0] * 50,
    ["a", "b"],
]


def mutate_values(value: Any, dice: random.Random) -> Any:
    """A copy of a JSON value in which one to three parts are other values, missing, renamed, repeated or swapped."""
    value = deepcopy(value)
    for _ in range(dice.choice([1, 1, 2, 3])):
        slots = list(_slots(value))
        if not slots:
            return dice.choice(VALUES)
        container, key = dice.choice(slots)
        choice = dice.randrange(8)
        if choice == 0:
            del container[key]
        elif choice == 1:
            container[key] = deepcopy(_value_of(dice.choice(slots)))
        elif choice == 2 and isinstance(container, dict):
            container[dice.choice(["", "x", key + "s", "type"])] = container.pop(key)
        elif choice == 3 and isinstance(container, list):
            container.insert(dice.randrange(len(container) + 1), deepcopy(container[key]))
        elif choice == 4 and isinstance(container[key], int | float) and not isinstance(container[key], bool):
            container[key] = dice.choice(
                [container[key] + 1, -container[key], container[key] * 10**6, str(container[key])]
            )
        else:
            container[key] = deepcopy(dice.choice(VALUES))
    return value


def _slots(value: Any) -> list[tuple[Any, Any]]:
    """All places of values inside a value."""
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        part = todo.pop()
        keys = list(part) if isinstance(part, dict) else list(range(len(part))) if isinstance(part, list) else []
        found += [(part, key) for key in keys]
        todo += [part[key] for key in keys]
    return found


def _value_of(slot: tuple[Any, Any]) -> Any:
    container, key = slot
    return container[key]
