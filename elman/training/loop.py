"""Training: an iterator of reports, with bit-exact checkpointing and resumption; by updates, or by counting n-grams."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from elman.config import Count, Facts
from elman.errors import TrainingError
from elman.training.config import TrainingConfig
from elman.training.distributed import World
from elman.training.early_stopping import EarlyStopping
from elman.training.learning_rates import learning_rate, with_suggested_rate
from elman.training.reports import Report, ReportKind, Validation, perplexity
from elman.training.update import Updater

INTERRUPTED = "interrupted; the run can be resumed"
SAVE_COST_RATIO = 20  # a validation saves only if the time since the last save is this multiple of what it took


class Counters(Facts):
    """Where training is, in a checkpoint."""

    step: Count
    epoch: Count = 0
    index: Count = 0
    tokens: Count
    first_loss: float | None = None


class BaseTrainer:
    """What training by updates and fitting by counting have in common: an iterator of reports that can be stopped."""

    total_steps: int
    first_loss: float | None = None  # of the first update
    last_loss = 0.0  # since the last but one log entry
    step = epoch = index = tokens = 0
    asked: str | None = None  # reason of a requested stop
    ended: str | None = None

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
        self.device, self.validate = torch.device(device), validate
        self._started = time.monotonic()
        self.prepare()

    def prepare(self) -> None:
        """Called at the end of construction."""

    def stop(self, reason: str = INTERRUPTED) -> None:
        """Request a stop with a checkpoint after the current update. A request in any process stops all."""
        self.asked = self.asked or reason

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights, or of their running average once there is one."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors besides the weights that exact resumption needs. Collective: every process must call it."""
        return {}

    def _restore_counters(self, facts: dict[str, Any]) -> None:
        stored = {name: facts[name] for name in Counters.model_fields if name in facts}
        for name, value in Counters.make(stored, "trainer"):
            setattr(self, name, value)

    def _validated(self) -> Validation:
        """Scores by rank 0, which alone knows all of them; the loss and the criterion of choice are shared."""
        assert self.validate is not None
        found = Validation.of(self.validate() if self.world.leads else 0.0)
        return found._replace(
            loss=self.world.from_leader(found.loss, patient=True), choice=self.world.from_leader(found.choice)
        )

    def _report(self, kind: ReportKind, clock: dict[str, float] | None = None, **values: Any) -> Report:
        seconds = {"seconds": round(time.monotonic() - self._started, 3)}
        part = self.index / self.batches.length_of(self.epoch) if self.index else 0.0
        return Report(kind, self.step, self.epoch + part, self.tokens, values, (clock or {}) | seconds)

    def _validation_report(self, found: Validation, improved: bool) -> Report:
        figures: dict[str, Any] = {f"valid_{name}": value for name, value in found.figures.items()}
        return self._report("validation", valid_loss=found.loss, **figures, improved=improved)


class Trainer(BaseTrainer):
    """Iterate over it to train. After each report, `tensors` and `facts` are a complete, consistent checkpoint."""

    def prepare(self) -> None:
        epochs = sum(self.batches.length_of(epoch) for epoch in range(self.config.max_epochs))
        if not epochs:
            raise TrainingError("the training data yields no batch; use more text, or a smaller training.batch_size")
        self.total_steps = min(epochs, self.config.max_steps or epochs)
        self.config = with_suggested_rate(self.config, self.model, self.total_steps)
        self.update = Updater(self.model, self.config, self.device, self.world)
        self.early_stopping = EarlyStopping(self.config)

    def __iter__(self) -> Iterator[Report]:
        self._started = self._logged = self._saved = time.monotonic()
        self._save_cost = 0.0
        yield self._report("start", total_steps=self.total_steps)
        if self.step >= self.total_steps:
            self._end("the planned steps are done")
        elif self.early_stopping.stop_reason:
            self._end(self.early_stopping.stop_reason)
        while self.ended is None:
            for batch in self.batches.epoch(self.epoch, self.index):
                rate = learning_rate(self.config, self.step, self.total_steps) * self.early_stopping.rate_factor
                self.update(batch, rate)
                yield from self._after(batch.real, rate)
                if self.ended is not None:
                    break
        yield from self._divergence()
        yield self._report("end", reason=self.ended)

    def _divergence(self) -> Iterator[Report]:
        """A note if the loss is far above that of the untrained model."""
        if self.first_loss is not None and self.last_loss > 2 * self.first_loss + 1:  # no noise of single batches
            change = f"its loss ended at {self.last_loss:.4g}, after {self.first_loss:.4g} at the first update"
            kept = "the best validated checkpoint is kept" if self.validate else "the last checkpoint is kept"
            text = f"training diverged: {change}; {kept}. Try a lower training.learning_rate"
            yield self._report("note", text=text)

    def weights(self) -> dict[str, Tensor]:
        averaged, own = self.update.average.mean, self.model.state_dict()
        return {name: averaged.get(name, value).detach().clone() for name, value in own.items()}

    def tensors(self) -> dict[str, Tensor]:
        return self.update.tensors()

    def facts(self) -> dict[str, Any]:
        """Everything but tensors that a checkpoint needs to continue exactly, as JSON values."""
        names = ("step", "epoch", "index", "tokens", "total_steps")
        counters = {name: getattr(self, name) for name in names}
        return {
            **counters,
            "first_loss": self.first_loss,
            "judge": self.early_stopping.facts(),
            "update": self.update.facts(),
        }

    def restore(self, stored: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        """Restore all state but the weights; returns whether resumption is exact."""
        self._restore_counters(facts)
        if self.index and self.index >= self.batches.length_of(self.epoch):
            raise ValueError(f"epoch {self.epoch} has no batch {self.index}")
        self.early_stopping.restore(facts["judge"])
        return self.update.restore(stored, facts["update"])

    def _after(self, real: int, rate: float) -> Iterator[Report]:
        """Advance the counters, then log, validate and save, so that a checkpoint resumes at the next batch."""
        self.step, self.index, self.tokens = self.step + 1, self.index + 1, self.tokens + real
        if self.step == 1:
            self.first_loss = self.update.mean_loss()
        epoch_done = self.index >= self.batches.length_of(self.epoch)
        if epoch_done:
            self.epoch, self.index = self.epoch + 1, 0
        last = self.step >= self.total_steps
        log = last or self.step % self.config.log_every == 0
        if log or self.device.type == "cpu":  # on an accelerator, reading the counter synchronizes with the host
            self._check_skips()
        if log:
            yield self._log(rate)
        every = self.config.evaluate_every
        validated = self.validate is not None and (last or (self.step % every == 0 if every else epoch_done))
        if validated:
            yield self._validation()
        if last:
            self._end("the planned steps are done")
        elif log:
            self._check_clock()
        often = self.world.size == 1 or self.device.type == "cpu"
        if (log or often) and self.world.any(self.asked is not None):
            self._end(self.asked or INTERRUPTED)
        if self.ended or self._save_due(log, validated):
            began = time.monotonic()
            yield self._report("save")
            self._saved = time.monotonic()
            self._save_cost = self._saved - began

    def _check_skips(self) -> None:
        limit = 1 if self.config.non_finite == "stop" else self.config.max_skips
        in_row = int(self.update.in_row.item())
        if in_row >= limit:
            times = f"{in_row} times in a row " if limit > 1 else ""
            raise TrainingError(
                f"non-finite loss or gradient {times}at step {self.step}; the last checkpoint is intact. Try a lower "
                "training.learning_rate, a smaller training.clip_grad_norm, or training.precision: fp32"
            )

    def _log(self, rate: float) -> Report:
        loss, tokens, skipped = self.update.drain()
        self.last_loss = loss
        now = time.monotonic()
        speed, self._logged = tokens / max(now - self._logged, 1e-9), now
        values = {"loss": loss, "perplexity": perplexity(loss), "learning_rate": rate}
        values |= {"grad_norm": float(self.update.norm)} | ({"skipped": skipped} if skipped else {})
        return self._report("step", {"tokens_per_second": round(speed, 1)}, **values)

    def _validation(self) -> Report:
        averaged = self.update.average.count > 0
        if averaged:
            self.update.average.swap()
        began = time.monotonic()
        with self.update.matmul_precision():
            found = self._validated()
        if averaged:
            self.update.average.swap()
        improved = self.early_stopping.update(found.choice, self.step)
        if self.early_stopping.averaging and not averaged:
            self.update.average.update()
        if self.early_stopping.stop_reason:
            self._end(self.early_stopping.stop_reason)
        self._logged += time.monotonic() - began  # throughput excludes validation
        return self._validation_report(found, improved)

    def _check_clock(self) -> None:
        limit, minutes = self.config.max_minutes, (time.monotonic() - self._started) / 60
        if limit and self.world.from_leader(minutes) >= limit:
            self._end(f"the time limit of {limit:g} minutes is reached")

    def _end(self, reason: str) -> None:
        self.ended = self.ended or reason

    def _save_due(self, log: bool, validated: bool) -> bool:
        """By steps if configured; else by time, and after validations unless saving would take too much time."""
        if self.config.save_every:
            return self.step % self.config.save_every == 0
        waited = time.monotonic() - self._saved
        due = waited >= 60 * self.config.save_minutes or (validated and waited >= SAVE_COST_RATIO * self._save_cost)
        return (log or validated) and bool(self.world.from_leader(float(due)))


class CountTrainer(BaseTrainer):
    """For a model that `fits_by_counting`: the whole fit is one step, with one validation. A stop discards it."""

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
        self._restore_counters(facts)
        self.epoch = self.step
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
