"""Reads the lines given to `predict` and `score`; errors name the line."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from elman.errors import DataError

Read = TypeVar("Read")


def numbered(lines: Iterable[Any], read: Callable[[Any], Read]) -> Iterator[Read]:
    """Each line as `read` parses it, lazily; an error has the number of its line."""
    for number, line in enumerate(lines, start=1):
        try:
            found = read(line)
        except DataError as error:
            raise DataError(error.reason, line=number, remedy=error.remedy) from None
        yield found


def text_of(line: Any, *names: str) -> str:
    """A text itself, or the first of these fields of an object."""
    if not isinstance(line, dict):
        return str(line)
    found = next((line[name] for name in names if name in line), None)
    if not isinstance(found, str):
        raise missing(line, names[0])
    return found


def missing(line: dict[str, Any], name: str, example: str = '"..."') -> DataError:
    """The error for an object without the field it needs."""
    has = f"{line[name]!r} there" if name in line else ", ".join(map(repr, line)) or "nothing"
    return DataError(f"needs a text {name!r}, but has {has}", remedy=f'write {{"{name}": {example}}}')
