"""Provenance of figures: the Python call that makes a figure again is recorded in it."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from elman.figures.figure import Figure
from elman.ops import taps

LONGEST = 300  # characters of a call; longer ones contain a whole text

P = ParamSpec("P")
Made = TypeVar("Made", bound=Figure)


def carries_call(make: Callable[P, Made]) -> Callable[P, Made]:
    """Decorator: figures of this function get its call as their command, unless activations are edited meanwhile,
    which the call would not show."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Made:
        figure = make(*args, **kwargs)
        return figure if figure.command or taps.listening() else figure.with_command(call_of(make, *args, **kwargs))

    return made


def call_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The call as source, without defaults and the subtitle; empty where an argument cannot be written as source."""
    found = signature(function)
    parts = []
    for name, value in found.bind(*args, **kwargs).arguments.items():
        default = found.parameters[name].default
        if name == "subtitle" or (type(value) is type(default) and value == default):
            continue
        source = source_of(value)
        if source is None:
            return ""
        parts.append(source if default is found.empty else f"{name}={source}")
    call = f"{function.__module__}.{function.__name__}({', '.join(parts)})"
    return call if len(call) <= LONGEST else ""


def source_of(value: Any) -> str | None:
    """A value as a Python expression: literals, containers of them, and objects with a `call`."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = [(source_of(key), source_of(one)) for key, one in value.items()]
        return None if any(None in pair for pair in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, Sequence | set | frozenset):
        parts = [source_of(one) for one in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    return getattr(value, "call", None) or None
