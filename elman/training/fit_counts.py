"""Fits count-based models (n-grams): one pass, one validation, one save, with the interface of `Trainer`."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from elman.training.config import TrainingConfig
from elman.training.distributed import World
from elman.training.loop import INTERRUPTED
from elman.training.reports import Report, ReportKind, Validation


class CountTrainer:
    """Replaces `Trainer` for a model that `fits_by_counting`: the whole fit is one step."""

    total_steps = 1

    def __init__(
        self,
        model: Any,
        batches: Any,
        config: TrainingConfig,
        *,
        device: torch.device | str = "cpu",
        world: World = World(),  # noqa: B008  (frozen)
        validate: Callable[[], float | Validation] | None = None,
    ):
        self.model, self.batches, self.config, self.world = model.to(device), batches, config, world
        self.validate = validate
        self.step = self.tokens = 0
        self.asked: str | None = None
        self.ended: str | None = None

    def __iter__(self) -> Iterator[Report]:
        self._started = time.monotonic()
        yield self._report("start", total_steps=self.total_steps)
        if self.step == 0:
            yield from self._fit()
        self.ended = self.asked or "everything is counted"
        if self.step:
            yield self._report("save")
        yield self._report("end", reason=self.ended)

    def stop(self, reason: str = INTERRUPTED) -> None:
        """Request a stop; an unfinished count is discarded."""
        self.asked = self.asked or reason

    def weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "tokens": self.tokens}

    def restore(self, stored: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        self.step, self.tokens = facts["step"], facts["tokens"]
        return True

    def _fit(self) -> Iterator[Report]:
        store = self.batches.store
        for counted in self.model.fit(store):
            yield self._report("note", text=f"{counted.ngrams:,} distinct n-grams of length {counted.length}")
            if self.world.any(self.asked is not None):
                return
        self.step, self.tokens = 1, store.facts.tokens
        for note in self.model.notes:
            yield self._report("note", text=note)
        if self.validate is not None:
            found = Validation.of(self.validate() if self.world.leads else 0.0)
            loss = self.world.from_leader(found.loss)
            figures = {f"valid_{name}": value for name, value in found.figures.items()}
            yield self._report("validation", valid_loss=loss, **figures, improved=math.isfinite(loss))

    def _report(self, kind: ReportKind, **values: Any) -> Report:
        clock = {"seconds": round(time.monotonic() - self._started, 3)}
        return Report(kind, self.step, float(self.step), self.tokens, values, clock)
