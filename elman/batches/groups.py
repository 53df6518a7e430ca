"""Groups the items of a stream."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from elman.errors import ElmanError

Item = TypeVar("Item")


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of up to `size` items; items before an error are yielded before it is raised."""
    stream = iter(items)
    problem: ElmanError | None = None
    while problem is None:
        batch: list[Item] = []
        try:
            batch.extend(islice(stream, size))
        except ElmanError as error:
            problem = error
        if batch:
            yield batch
        elif problem is None:
            return
    raise problem
