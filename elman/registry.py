"""Registries of classes by name, used by recipes, laws, listings and docs."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from elman.errors import ConfigError, UnknownName, brief

Item = TypeVar("Item")
Registered = TypeVar("Registered", bound=type)
OWN = ("cell", "layer", "model", "task", "classifier", "tagger", "translator", "data format")  # what users register


class Traits(NamedTuple):
    """Core idea, limitation and costs of a family, shown by `elman list` and docs/families.md and measured in tests.

    Costs are multiplications per token at batch size 1, as formulas over settings: `input` and `width` of the layer,
    `length` of the sequence, `inside` for the sum over inner layers; `·`, `²`, `³`, `min`, `max` and `log2` have their
    usual meaning. A remark may follow after a semicolon.
    """

    idea: str
    limitation: str
    training: str  # forward and backward pass of the parallel form
    stepping: str
    state: str  # elements per row


class SuggestedRate(NamedTuple):
    """Suggested learning rate and warm-up of a part of a model, as measured (docs/findings.md)."""

    rate: float  # learning rate · width
    warmup: int = 0  # warm-up steps


class Registry(Generic[Item]):
    """`@CELLS.register("gru")` registers a class; `CELLS["gru"]` returns it; an unknown name lists the known ones."""

    def __init__(self, kind: str):
        self.kind = kind
        self._items: dict[str, type[Item]] = {}
        self._followers: list[Callable[[str, type[Item]], None]] = []

    def register(self, name: str) -> Callable[[Registered], Registered]:
        """Decorator that registers a class under a name."""

        def add(item: Registered) -> Registered:
            if name in self._items:
                raise ConfigError(f"a {self.kind} named {name!r} already exists; use another name")
            self._items[name] = item
            item.name = name  # type: ignore[attr-defined]
            for follower in self._followers:
                follower(name, item)
            return item

        return add

    def follow(self, follower: Callable[[str, type[Item]], None]) -> None:
        """Calls `follower` with the name and class of every item, also of later ones."""
        for name in self:
            follower(name, self[name])
        self._followers.append(follower)

    def __getitem__(self, name: str) -> type[Item]:
        if not isinstance(name, str):
            raise ConfigError(f"the name of a {self.kind} is a word, not {brief(name)}")
        if name not in self._items:
            raise self.unknown(name)
        return self._items[name]

    def unknown(self, name: str, also: Iterable[str] = ()) -> UnknownName:
        """The error for a name that is neither in this registry nor in `also`."""
        hint = "; for your own: pass the file that registers it with --module" if self.kind in OWN else ""
        return UnknownName(self.kind, name, [*self._items, *also], hint)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def describe(self) -> dict[str, str]:
        """Each name with the first line of its docstring."""
        return {name: (inspect.getdoc(self._items[name]) or "").partition("\n")[0] for name in self}
