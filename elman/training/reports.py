"""Events that training yields."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

ReportKind = Literal["start", "step", "validation", "sample", "save", "note", "end", "result"]


class Validation(NamedTuple):
    """Result of one validation."""

    loss: float
    choice: float
    """Model selection criterion, lower is better; usually the loss."""
    figures: Mapping[str, float] = {}
    """Further metrics to report."""

    @classmethod
    def of(cls, result: "float | Validation") -> "Validation":
        """A bare loss is its own selection criterion."""
        return result if isinstance(result, Validation) else cls(result, result)


@dataclass(frozen=True)
class Report:
    """One event. `values` are reproducible; `clock` holds wall-clock times and throughput."""

    kind: ReportKind
    step: int
    epoch: float = 0.0
    tokens: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)
    weights: Callable[[], Mapping[str, Tensor]] | None = field(default=None, repr=False, compare=False)
    """The weights of now, of samples: for histograms."""

    def plain(self) -> dict[str, Any]:
        """The event as a line of the metrics file."""
        line = {"kind": self.kind, "step": self.step, "epoch": round(self.epoch, 4), "tokens": self.tokens}
        return {**line, **self.values, **({"clock": self.clock} if self.clock else {})}


def perplexity(loss: float) -> float:
    """exp(nats per token); infinite on overflow."""
    return math.exp(loss) if loss < 700 else math.inf
