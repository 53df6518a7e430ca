"""What training tells whoever listens."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["start", "step", "validation", "save", "note", "end", "result"]


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
