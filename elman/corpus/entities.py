"""Tag sequences as entities: `B-PER I-PER O` is one entity of two words.

The CoNLL scorer (conlleval, Tjong Kim Sang, 2004) accepts any tag sequence: an `I-` that does not continue an entity of
its type starts one, like `B-`.
"""

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
ROLES = {"B": "B", "I": "I", "E": "E", "S": "S", "M": "I", "L": "E", "U": "S"}  # BMES and BILOU letters


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
        if start is not None and _ends(before, before_type, role, type_):
            result.append(Entity(before_type, start, place))
            start = None
        if _starts(before, before_type, role, type_):
            start = place
        before, before_type = role, type_
    return result


def _ends(before: str, before_type: str, role: str, type_: str) -> bool:
    closed = before in ("E", "S")
    return closed or (before in ("B", "I") and role in ("B", "S", OUTSIDE)) or _changes(before, before_type, type_)


def _starts(before: str, before_type: str, role: str, type_: str) -> bool:
    after_end = before in ("E", "S", OUTSIDE) and role in ("E", "I")
    return role in ("B", "S") or after_end or _changes(role, type_, before_type)


def _changes(role: str, type_: str, other: str) -> bool:
    return role not in (OUTSIDE, ".") and type_ != other
