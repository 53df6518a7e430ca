"""Groups the items of a stream."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from elman.errors import ElmanError

Item = TypeVar("Item")


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of up to `size` items; items before an error are yielded before it is raised."""
    return growing_groups(items, size, size)


def growing_groups(items: Iterable[Item], size: int, most: int) -> Iterator[list[Item]]:
    """The same, with twice as many items in each next list, up to `most`."""
    group: list[Item] = []
    try:
        for item in items:
            group.append(item)
            if len(group) == size:
                yield group
                group, size = [], min(2 * size, most)
    except ElmanError:
        if group:
            yield group
        raise
    if group:
        yield group


def one_ahead(begun: Iterable[Item], at_once: Callable[[Item], bool] = lambda _: False) -> Iterator[Item]:
    """Each item after the next one has begun, unless it is wanted at once; the last one also before an error."""
    before: deque[Item] = deque()
    try:
        for item in begun:
            before.append(item)
            while len(before) > (not at_once(item)):
                yield before.popleft()
    except ElmanError:
        yield from before
        raise
    yield from before
