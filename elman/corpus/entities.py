"""Rows of tags as entities: `B-PER I-PER O` is one of two words.

CoNLL's scorer (conlleval, Tjong Kim Sang, 2004) takes any row of tags: an `I-` with nothing of its type before it
begins an entity as `B-` would.
"""

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
ROLES = {"B": "B", "I": "I", "E": "E", "S": "S", "M": "I", "L": "E", "U": "S"}  # BMES and BILOU say the same


class Entity(NamedTuple):
    """Words `start` to `end`, the latter not included."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """`B-PER` as role and type; a tag without a type, such as O, has an empty one."""
    role, dash, kind = tag.partition("-")
    return (ROLES.get(role, role), kind) if dash else (tag, "")


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, by the scorer's rules; what they leave open (E, S) is read as seqeval does."""
    result: list[Entity] = []
    start: int | None = None
    before, before_type = OUTSIDE, ""
    for place, (role, kind) in enumerate([*map(split_tag, tags), (OUTSIDE, "")]):
        if start is not None and _ends(before, before_type, role, kind):
            result.append(Entity(before_type, start, place))
            start = None
        if _starts(before, before_type, role, kind):
            start = place
        before, before_type = role, kind
    return result


def _ends(before: str, before_type: str, role: str, kind: str) -> bool:
    closed = before in ("E", "S")
    return closed or (before in ("B", "I") and role in ("B", "S", OUTSIDE)) or _changes(before, before_type, kind)


def _starts(before: str, before_type: str, role: str, kind: str) -> bool:
    after_end = before in ("E", "S", OUTSIDE) and role in ("E", "I")
    return role in ("B", "S") or after_end or _changes(role, kind, before_type)


def _changes(role: str, kind: str, other: str) -> bool:
    return role not in (OUTSIDE, ".") and kind != other
