"""What comes one by one, taken together."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from elman.errors import ElmanError

Item = TypeVar("Item")


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of up to `size` items, as they come; what came before an error is given first."""
    stream = iter(items)
    problem: ElmanError | None = None
    while problem is None:
        some: list[Item] = []
        try:
            some.extend(islice(stream, size))
        except ElmanError as error:
            problem = error
        if some:
            yield some
        elif problem is None:
            return
    raise problem
