"""Search spaces: the values that a setting may take, written as `log(1e-4,1e-2)`, `int(16,128)` or `0.1,0.3,0.5`."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import yaml

from elman.config import parse_overrides
from elman.errors import ConfigError, brief, nearest
from elman.plain_yaml import parse_yaml

DIGITS = 4  # significant ones of a drawn number: as many as a recipe needs
CALL = re.compile(r"([A-Za-z_]\w*)\s*\((.*)\)", re.DOTALL)
INTERVALS = {  # name: (log scale, whole numbers)
    "uniform": (False, False),
    "interval": (False, False),
    "log": (True, False),
    "loguniform": (True, False),
    "int": (False, True),
    "logint": (True, True),
}
KNOWN = "log(1e-4,1e-2), uniform(0,0.5), int(16,128), logint(16,1024), range(1,4), choice(a,b), or values by commas"
RANGE = 1000  # values at most


class Space(Protocol):
    """The values of one setting."""

    def draw(self, dice: np.random.Generator) -> Any: ...

    def ends(self) -> Sequence[Any]:
        """Values that must be valid if the space is."""

    def place(self, value: Any) -> float:
        """Of a value in the space, from 0 to 1."""


@dataclass(frozen=True)
class Choice:
    """A few values of any type."""

    values: tuple[Any, ...]

    def draw(self, dice: np.random.Generator) -> Any:
        return self.values[dice.integers(len(self.values))]

    def ends(self) -> Sequence[Any]:
        return self.values

    def place(self, value: Any) -> float:
        return self.values.index(value) / max(1, len(self.values) - 1)


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; with `log` every factor is as likely as any other."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, dice: np.random.Generator) -> float:
        half = 0.5 if self.whole else 0.0
        low, high = self.low - half, self.high + half
        return self.rounded(
            math.exp(dice.uniform(math.log(low), math.log(high))) if self.log else dice.uniform(low, high)
        )

    def rounded(self, value: float) -> float:
        """A value of the space, short enough to be read."""
        value = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(value, self.low), self.high)

    def ends(self) -> Sequence[float]:
        return self.low, self.high

    def place(self, value: float) -> float:
        low, high, value = (math.log(one) if self.log else one for one in (self.low, self.high, value))
        return (value - low) / (high - low)


def parse_spaces(words: Sequence[str]) -> dict[str, str]:
    """Spaces by setting, from `--set KEY=SPACE`, as they are written."""
    for word in words:
        if "=" not in word:
            raise ConfigError(f"--set {word}: write --set KEY=SPACE, with {KNOWN}")
    return parse_overrides(words)


def read_spaces(written: Mapping[str, Any]) -> dict[str, Space]:
    """The spaces of settings; those of whole sections first, whose own settings may follow."""
    return {key: read_space(key, written[key]) for key in sorted(written, key=lambda key: (key.count("."), key))}


def read_space(key: str, written: Any) -> Space:
    """A space as a text, or a list of values."""
    try:
        if isinstance(written, list):
            return _choice(written)
        call = CALL.fullmatch(str(written).strip())
        if call is None:
            return _choice(_values(str(written)))
        name, inside = call[1].lower(), _values(call[2])
        if name == "choice":
            return _choice(inside)
        if name == "range":
            return _choice(_range(inside))
        if name not in INTERVALS:
            raise ConfigError(
                f"there is no space {name!r}{nearest(name, [*INTERVALS, 'choice', 'range'])}; write {KNOWN}"
            )
        return _interval(name, inside)
    except ConfigError as error:
        shown = written[:100] if isinstance(written, str) else brief(written)
        raise ConfigError(f"--set {key}={shown}: {error}") from None


def shown(value: Any) -> str:
    """A setting as a recipe has it."""
    if isinstance(value, float):
        return f"{value:g}"
    return (
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
    )


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Settings without their sections, where that leaves them different."""
    keys = list(keys)
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def _values(text: str) -> list[Any]:
    found = parse_yaml(f"[{text}]")
    return [_number(one) for one in found]


def _number(value: Any) -> Any:
    """1e-4 is a number here, which YAML 1.1 reads as text."""
    if isinstance(value, str):
        try:
            return float(value) if math.isfinite(float(value)) else value
        except ValueError:
            pass
    return value


def _choice(values: Sequence[Any]) -> Choice:
    unequal = [value for place, value in enumerate(values) if value not in values[:place]]
    if len(unequal) < 2:
        raise ConfigError(f"a space has two values or more; write {KNOWN}")
    return Choice(tuple(unequal))


def _range(inside: Sequence[Any]) -> list[float]:
    """As Python's range: without its end."""
    if not 2 <= len(inside) <= 3 or not all(_is_number(one) for one in inside) or (len(inside) == 3 and inside[2] <= 0):
        raise ConfigError("write range(start,stop) or range(start,stop,step); stop itself is left out")
    start, stop, step = (*inside, 1)[:3]
    count = math.ceil((stop - start) / step - 1e-9)
    if count > RANGE:
        raise ConfigError(f"{count:,} values are too many; int({start},{stop}) draws from as many as you like")
    return [start + step * n if isinstance(step, int) else round(start + step * n, 12) for n in range(count)]


def _interval(name: str, inside: Sequence[Any]) -> Interval:
    log, whole = INTERVALS[name]
    if len(inside) != 2 or not all(_is_number(one) for one in inside):
        raise ConfigError(f"write {name}(low,high), with two numbers")
    low, high = inside
    if low >= high:
        raise ConfigError(f"the lower end, {low:g}, is not below the upper one, {high:g}")
    if log and low <= 0:
        raise ConfigError(f"a log scale begins above 0, not at {low:g}")
    if whole and (low % 1 or high % 1):
        raise ConfigError(f"{name} draws whole numbers: its ends are whole")
    return Interval(int(low), int(high), log, True) if whole else Interval(float(low), float(high), log)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
