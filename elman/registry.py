"""Names for classes, so that recipes, laws, listings and docs find them without being told twice."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from elman.errors import ConfigError, UnknownName

Item = TypeVar("Item")
Registered = TypeVar("Registered", bound=type)
OWN = ("cell", "layer", "model", "task", "classifier", "tagger", "translator")  # what people write for themselves


class Traits(NamedTuple):
    """What to know of a family before choosing it: `elman list` and docs/families.md show it, tests measure it.

    Costs are multiplications per token of a batch of one, as formulas in the words of settings: `input` and `width` of
    the layer, `length` of the sequence, `inside` for the sum of the same over the layers inside; `·`, `²`, `³`, `min`,
    `max` and `log2` mean what they say. After a semicolon may come a remark.
    """

    idea: str
    limitation: str
    training: str  # forward and backward, of the form that whole sequences take
    stepping: str
    state: str  # numbers of one row


class Pace(NamedTuple):
    """How fast a part of a model learns without going astray, as measured (docs/experiments.md)."""

    rate: float  # of learning, times the width
    warmup: int = 0  # updates over which that should be reached


class Registry(Generic[Item]):
    """`@CELLS.register("gru")` on a class; `CELLS["gru"]` gives it back; an unknown name lists the known ones."""

    def __init__(self, kind: str):
        self.kind = kind
        self._items: dict[str, type[Item]] = {}

    def register(self, name: str) -> Callable[[Registered], Registered]:
        def add(item: Registered) -> Registered:
            if name in self._items:
                raise ConfigError(f"there is a {self.kind} called {name!r} already; yours needs another name")
            self._items[name] = item
            item.name = name  # type: ignore[attr-defined]
            return item

        return add

    def __getitem__(self, name: str) -> type[Item]:
        if name not in self._items:
            raise self.unknown(name)
        return self._items[name]

    def unknown(self, name: str, also: Iterable[str] = ()) -> UnknownName:
        """The error to raise for a name that neither this registry nor `also` knows."""
        hint = "; of your own: give the file that registers it with --module" if self.kind in OWN else ""
        return UnknownName(self.kind, name, [*self._items, *also], hint)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def describe(self) -> dict[str, str]:
        """Each name with the first line of its documentation."""
        return {name: (inspect.getdoc(self._items[name]) or "").partition("\n")[0] for name in self}
