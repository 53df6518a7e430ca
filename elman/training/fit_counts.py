"""Fits count-based models (n-grams): one pass, one validation, one save, with the interface of `Trainer`."""

import math
import time
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from elman.training.loop import BaseTrainer
from elman.training.reports import Report


class CountTrainer(BaseTrainer):
    """Replaces `Trainer` for a model that `fits_by_counting`: the whole fit is one step. A stop discards it."""

    total_steps = 1

    def __iter__(self) -> Iterator[Report]:
        self._started = time.monotonic()
        yield self._report("start", total_steps=self.total_steps)
        if self.step == 0:
            yield from self._fit()
        self.ended = self.asked or "everything is counted"
        if self.step:
            yield self._report("save")
        yield self._report("end", reason=self.ended)

    def facts(self) -> dict[str, Any]:
        return {"step": self.step, "tokens": self.tokens}

    def restore(self, stored: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        self.step = self.epoch = facts["step"]
        self.tokens = facts["tokens"]
        return True

    def _fit(self) -> Iterator[Report]:
        store = self.batches.store
        for counted in self.model.fit(store):
            yield self._report("note", text=f"{counted.ngrams:,} distinct n-grams of length {counted.length}")
            if self.world.any(self.asked is not None):
                return
        self.step = self.epoch = 1
        self.tokens = store.facts.tokens
        for note in self.model.notes:
            yield self._report("note", text=note)
        if self.validate is not None:
            found = self._validated()
            yield self._validation_report(found, improved=math.isfinite(found.loss))
