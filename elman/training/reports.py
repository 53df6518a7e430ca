"""What training tells whoever listens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["start", "step", "validation", "save", "note", "end", "result"]


class Validation(NamedTuple):
    """What a look at held-out data gave."""

    loss: float
    choice: float
    """What decides which weights are best: the lower, the better. The loss as a rule."""
    figures: Mapping[str, float] = {}
    """More to tell."""

    @classmethod
    def of(cls, found: "float | Validation") -> "Validation":
        """A bare loss is also what is chosen by."""
        return found if isinstance(found, Validation) else cls(found, found)


@dataclass(frozen=True)
class Report:
    """One event. `values` are the same in every repetition of a run; `clock` is what differs."""

    kind: Kind
    step: int
    epoch: float = 0.0
    tokens: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As a line of the metrics file."""
        line = {
            "kind": self.kind,
            "step": self.step,
            "epoch": round(self.epoch, 4),
            "tokens": self.tokens,
            **self.values,
        }
        return {**line, "clock": self.clock} if self.clock else line
