"""Functions on states: a state is a tensor or a (named) tuple of states, batch first (a pytree)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.shapes import State


def map_state(function: Callable[..., Tensor], state: State, *others: State) -> State:
    """Applies `function` to each tensor of a state, and the matching tensors of others (a tree map)."""
    if isinstance(state, Tensor):
        return function(state, *others)
    return _tuple_like(state, [map_state(function, *parts) for parts in zip(state, *others, strict=True)])


def leaves(state: State) -> list[Tensor]:
    """The tensors of a state."""
    return [part for _, part in tensors(state)]


def with_leaves(state: State, parts: Iterable[Tensor]) -> State:
    """A state of the same structure with these tensors."""
    parts = iter(parts)
    return map_state(lambda _: next(parts), state)


def _tuple_like(state: Any, parts: list[Any]) -> Any:
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def fixed(state: State, more: int) -> State:
    """A copy with fixed shapes for `more` steps: parts that grow (key/value caches) get preallocated room."""
    if isinstance(state, Tensor):
        return state.clone()
    if hasattr(state, "fixed"):
        return state.fixed(more)
    return _tuple_like(state, [fixed(part, more) for part in state])


def plain(state: State) -> State:
    """The inverse of `fixed`: a copy as a value, which steps never write to."""
    if isinstance(state, Tensor):
        return state.clone()
    if hasattr(state, "plain"):
        return state.plain()
    return _tuple_like(state, [plain(part) for part in state])


def detach(state: State) -> State:
    """Detaches all tensors from the graph: truncates backpropagation through time."""
    return map_state(Tensor.detach, state)


def take_rows(state: State, rows: Any) -> State:
    """The state of some rows of the batch, by a slice or an index tensor."""
    return map_state(lambda part: part[rows], state)


def choose(mask: Tensor, new: State, old: State) -> State:
    """Row by row: `new` where the mask is true, else `old`."""
    return map_state(lambda a, b: torch.where(mask.view(-1, *[1] * (a.dim() - 1)), a, b), new, old)


def keep(old: State, new: State, mask: Tensor | None = None) -> None:
    """Copies a new state into the memory of the old one, or the rows where the mask is true; parts that are the same
    tensor are skipped."""
    pairs = [(a, b) for (_, a), (_, b) in zip(tensors(old), tensors(new), strict=True) if a is not b]
    for a, b in pairs:
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            change = " to ".join(f"{tuple(part.shape)} in {part.dtype}" for part in (a, b))
            raise ValueError(f"a part of the state changes from {change}")
    taken = {part.untyped_storage()._cdata for _, part in tensors(old)}  # a part may be overwritten before it is read
    for a, b in [(a, b.clone() if b.untyped_storage()._cdata in taken else b) for a, b in pairs]:
        if mask is None:
            a.copy_(b)
        else:
            torch.where(mask.view(-1, *[1] * (a.dim() - 1)), b, a, out=a)


def tensors(state: State, name: str = "state") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its path as name, for checkpoints."""
    if isinstance(state, Tensor):
        yield name, state
    elif not isinstance(state, tuple | list):
        raise ConfigError(f"a state is a tensor or a tuple of states, not a {type(state).__name__}: {name}")
    else:
        for index, part in enumerate(state):
            yield from tensors(part, f"{name}.{index}")


def restore(like: State, stored: dict[str, Tensor], name: str = "state") -> State:
    """The inverse of `tensors`: a state with the structure of `like`, of stored tensors."""
    return with_leaves(like, (stored[path].to(part.device) for path, part in tensors(like, name)))
