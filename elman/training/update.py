"""One optimizer update, independent of how the batch is split into processes and micro-batches.

The rows of a batch go to the processes in turn, and within a process to its micro-batches in turn. Each part divides
the sum of its nats by the token count of the whole batch, so the gradients of all parts sum to the batch's gradient.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elman.batches import Batch, Examples
from elman.config import Count, Facts
from elman.layers import auxiliary_loss
from elman.ops.state import detach, map_state, restore, take_rows, tensors
from elman.shapes import State
from elman.training.config import TrainingConfig
from elman.training.cuda_graph import make_captured_updates
from elman.training.distributed import World
from elman.training.optimizers import WeightAverage, make_optimizer, optimizer_tensors, restore_optimizer

AnyBatch = Batch | Examples
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class UpdateFacts(Facts):
    """What a checkpoint has of an updater besides tensors."""

    averaged: Count
    scaler: dict[str, Any]
    processes: Annotated[int, Field(ge=1)]


class Updater:
    """Everything that an update changes: weights, optimizer state, carried states, running sums for the log."""

    def __init__(self, model: Any, config: TrainingConfig, device: torch.device, world: World):
        self.model, self.config, self.device, self.world = model, config, device, world
        self.optimizer = make_optimizer(model, config)
        self.scaler = self._scaler()
        self.moving = config.averaging == "moving"
        self.average = WeightAverage(model, config.averaging_steps if self.moving else math.inf)
        self.loss: nn.Module = _TotalLoss(model)
        if world.size > 1:
            self.loss = DistributedDataParallel(self.loss)
        self.carried: list[State | None] = [None] * config.micro_batches
        self.sums = torch.zeros(3, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
        self.in_row = torch.zeros((), device=device)  # consecutive skipped updates
        self.norm = torch.zeros((), device=device)
        self.captured = make_captured_updates(self)

    def __call__(self, batch: AnyBatch, rate: float) -> None:
        self.model.train()
        with self.matmul_precision():
            if self.captured is None:
                self.update_eagerly(batch, rate)
            else:
                self.captured(self, batch, rate)
        if self.average.count or self.moving:
            self.average.update()

    @contextmanager
    def matmul_precision(self) -> Iterator[None]:
        """Full float32 products with `precision: fp32`, TF32 otherwise; the process's own setting comes back after."""
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        exact = self.config.precision == "fp32"
        torch.set_float32_matmul_precision("highest" if exact else "high")
        torch.backends.cudnn.allow_tf32 = not exact
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]

    def update_eagerly(self, batch: AnyBatch, rate: float | Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.compute_update(batch)

    def compute_update(self, batch: AnyBatch) -> None:
        """The part of an update that needs no host synchronization and can be captured as a CUDA graph."""
        self.optimizer.zero_grad(set_to_none=True)
        nats = self._gradients(batch)
        self.scaler.unscale_(self.optimizer)
        self.norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_grad_norm or math.inf)
        bad = ~torch.isfinite(nats) if self.scaler.is_enabled() else ~torch.isfinite(nats + self.norm)
        bad = self.world.total(bad.float()) > 0
        if self.scaler.is_enabled():  # the gradient scaler handles overflowing gradients itself
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.found_inf = bad.float()  # type: ignore[attr-defined]  # fused optimizers then skip the step
            self.optimizer.step()
        self._accumulate(bad, nats, batch.real)

    def _gradients(self, batch: AnyBatch) -> Tensor:
        """Accumulates gradients of the whole batch's mean loss; returns the nats of this process's rows."""
        mine = batch.rows(slice(self.world.rank, None, self.world.size))
        nats = torch.zeros((), device=self.device)
        for number in range(self.config.micro_batches):
            piece = mine.rows(slice(number, None, self.config.micro_batches))
            last = number == self.config.micro_batches - 1
            together = self.world.size > 1
            share = self.world.size / batch.real
            if not piece.size:
                self.carried[number] = None
                if not (together and last):
                    continue
                piece, share = batch.rows(slice(0, 1)), 0.0  # every process must take part in the all-reduce
            real, piece = piece.real, piece.to(self.device)
            carried = None if piece.fresh else self.carried[number]
            state = None if carried is None else take_rows(carried, slice(piece.size))
            with self.loss.no_sync() if together and not last else nullcontext():  # type: ignore[operator]
                with torch.autocast(self.device.type, HALF.get(self.config.precision), self.config.precision in HALF):
                    objective, total, state = self.loss(piece, state, real)
                self.scaler.scale(objective * share).backward()
            self.carried[number] = detach(state) if state is not None and share and self.config.carry_state else None
            nats = nats + total * bool(share)
        return nats

    def _accumulate(self, bad: Tensor, nats: Tensor, real: int) -> None:
        """Running sums for the log; a skipped update leaves no trace, so its carried states are reset."""
        self.in_row.add_(1).mul_(bad)
        good = (~bad).double().to(self.sums.device)
        counted = nats.double().nan_to_num(0, 0, 0).to(self.sums.device)
        self.sums += torch.stack([counted * good, real * good, 1 - good])
        for number, state in enumerate(self.carried):
            if state is not None:
                start = self.model.initial_state(len(next(tensors(state))[1]))
                self.carried[number] = map_state(lambda new, old: torch.where(bad, new, old), start, state)

    def mean_loss(self) -> float | None:
        """Nats per token of this process since the last `drain`; None if all updates were skipped."""
        nats, tokens, _ = self.sums.tolist()
        return nats / tokens if tokens else None

    def drain(self) -> tuple[float, int, int]:
        """Nats per token, tokens and skipped updates since the last call, over all processes."""
        nats, tokens, skipped = self.sums.tolist()
        nats = float(self.world.total(self.sums[:1]).item())
        self.sums.zero_()
        return nats / tokens if tokens else math.nan, int(tokens), int(skipped)

    def renew_scaler(self) -> None:
        """A new gradient scaler with the same scale, without the state of an aborted update."""
        state, self.scaler = self.scaler.state_dict(), self._scaler()
        self.scaler.load_state_dict(state)

    def _scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, enabled=self.config.precision == "fp16")

    def tensors(self) -> dict[str, Tensor]:
        """Checkpoint tensors besides the weights: those shared by all processes, then each process's own."""
        shared = {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        shared |= {f"average.{name}": value for name, value in self.average.mean.items()}
        own = {"in_row": self.in_row, "sums": self.sums, "rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            own["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        for number, state in enumerate(self.carried):
            if state is not None:
                own |= dict(tensors(state, f"carried.{number}"))
        return shared | self.world.gather_tensors(own)

    def facts(self) -> dict[str, Any]:
        return {"averaged": self.average.count, "scaler": self.scaler.state_dict(), "processes": self.world.size}

    def restore(self, stored: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        """Returns whether resumption is exact: with another world size, carried states and generators start fresh."""
        if self.captured is not None:
            self.captured.forget()
        restore_optimizer(self.optimizer, _under(stored, "optimizer."))
        known = UpdateFacts.make(facts, "trainer.update")
        self.average.count = known.averaged
        self.average.mean = {name: value.to(self.device) for name, value in _under(stored, "average.").items()}
        if known.scaler:
            self.scaler.load_state_dict(known.scaler)
        if known.processes != self.world.size:
            return False
        own = _under(stored, f"process.{self.world.rank}.")
        self.in_row.copy_(own["in_row"])
        self.sums.copy_(own["sums"])
        for number in range(self.config.micro_batches):
            parts = {name: part for name, part in own.items() if name.startswith(f"carried.{number}")}
            self.carried[number] = restore(self.model.initial_state(1), parts, f"carried.{number}") if parts else None
        torch.set_rng_state(own["rng.cpu"])
        if self.device.type == "cuda" and "rng.cuda" in own:
            torch.cuda.set_rng_state(own["rng.cuda"], self.device)
        return True


class _TotalLoss(nn.Module):
    """The model's loss as a forward pass, because DistributedDataParallel wraps `forward`."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, batch: AnyBatch, state: State | None, real: int) -> tuple[Tensor, Tensor, State | None]:
        """The objective (nats plus auxiliary losses of layers), the nats alone, and the final state."""
        nats, state = self.model.batch_loss(batch, state)
        extra = auxiliary_loss(self.model)
        if extra is None:
            return nats, nats.detach(), state
        return nats + extra * real, nats.detach(), state


def _under(stored: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
