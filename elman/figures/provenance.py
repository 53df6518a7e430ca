"""The Python call that made a picture, below it, where it can be known: typed again, it makes the same picture."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from elman.figures.figure import Figure
from elman.ops import taps

LONGEST = 300  # characters: what is longer is no command but a text
LABELS = ("of",)  # arguments that are only written beside the picture

P = ParamSpec("P")


def carries_call(make: Callable[P, Figure]) -> Callable[P, Figure]:
    """A function that makes pictures, which then carry its call; none while what passes is edited, for that is not
    in the call."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Figure:
        figure = make(*args, **kwargs)
        return figure if figure.command or taps.listening() else figure.by(call_of(make, *args, **kwargs))

    return made


def call_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """As it can be typed, without what is so by default; nothing where an argument cannot be written down."""
    given = signature(function)
    parts = []
    for name, value in given.bind(*args, **kwargs).arguments.items():
        default = given.parameters[name].default
        if name in LABELS or (type(value) is type(default) and value == default):
            continue
        shown = spelled(value)
        if shown is None:
            return ""
        parts.append(shown if default is given.empty else f"{name}={shown}")
    whole = f"{function.__module__}.{function.__name__}({', '.join(parts)})"
    return whole if len(whole) <= LONGEST else ""


def spelled(value: Any) -> str | None:
    """A value as an expression: plain ones, and things that know the call that makes them."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = [(spelled(key), spelled(one)) for key, one in value.items()]
        return None if any(None in pair for pair in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, Sequence | set | frozenset):
        parts = [spelled(one) for one in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    return getattr(value, "call", None) or None
