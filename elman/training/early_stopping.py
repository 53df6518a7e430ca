"""Early stopping, learning rate reduction on plateau, and the trigger of weight averaging."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter

from elman.config import Count
from elman.jsonable import jsonable
from elman.training.config import TrainingConfig

LATER = ("missed",)  # fields that checkpoints of earlier versions lack
MISSED = "the best validation missed a milestone"


@dataclass
class EarlyStopping:
    """Tracks validation losses; its fields are its whole state."""

    config: TrainingConfig
    best: float = math.inf
    stale: Count = 0  # validations since the best loss
    divisions: Count = 0  # of the learning rate
    since_division: Count = 0
    averaging: bool = False
    missed: list[float] | None = None  # the milestone that was not reached, [step, loss]
    history: list[float] = field(default_factory=list)

    def update(self, loss: float, step: int = 0) -> bool:
        """Record the validation loss after a step; returns whether it is an improvement."""
        loss = loss if math.isfinite(loss) else math.inf
        improved = loss < self.best - self.config.tolerance
        self.best = min(self.best, loss) if improved else self.best
        self.stale = 0 if improved else self.stale + 1
        self.since_division = 0 if improved else self.since_division + 1
        if self.config.schedule == "plateau" and self.since_division > self.config.plateau_patience:
            self.divisions, self.since_division = self.divisions + 1, 0
        if self.config.averaging == "triggered" and not self.averaging:
            before = self.history[: -self.config.averaging_window]
            self.averaging = bool(before) and loss > min(before)
        self.history.append(loss)
        due = max((one for one in self.config.milestones if one[0] <= step), default=None)
        if due is not None and min(self.history) > due[1]:
            self.missed = list(due)
        return improved

    @property
    def rate_factor(self) -> float:
        """Factor on the scheduled learning rate after all divisions."""
        return self.config.plateau_divide**-self.divisions

    @property
    def stop_reason(self) -> str | None:
        """Why training should stop, or None."""
        if self.config.patience and self.stale >= self.config.patience:
            return f"early stopping: no improvement in {self.stale} validations"
        if self.missed is not None:
            step, loss = self.missed
            return f"{MISSED}: {min(self.history):.4g}, above {loss:.4g} after {step:g} steps"
        return None

    def facts(self) -> dict[str, Any]:
        """The fields but the settings as JSON values, which has no infinity: null instead."""
        return jsonable({field.name: getattr(self, field.name) for field in fields(self)[1:]})

    def restore(self, facts: dict[str, Any]) -> None:
        names = [field.name for field in fields(self)[1:]]
        found = {name: facts[name] for name in names if name in facts or name not in LATER}
        best, *history = (math.inf if loss is None else loss for loss in (found["best"], *found["history"]))
        found |= {"config": self.config, "best": best, "history": history}
        checked = TypeAdapter(EarlyStopping).validate_python(found)
        for name in names:
            setattr(self, name, getattr(checked, name))
