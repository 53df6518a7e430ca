"""Training updates as CUDA graphs: forward, backward and optimizer step in one launch.

An eager update launches hundreds of kernels, and the GPU waits for the host. Here the first updates of each batch shape
run eagerly as warm-up; then one is captured, and each later update copies its tokens into static buffers and replays
the graph. Weights and optimizer moments are captured at their addresses; tokens, learning rate, carried states and the
gradient norm have static buffers. All graphs share one memory pool.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elman.batches import Batch, Examples
from elman.errors import ElmanError, first_line
from elman.layers.experts import Experts
from elman.layers.laws import foreign
from elman.models import prediction_of
from elman.ops import kernel_timeout
from elman.ops.host_sync import graph_of, warn_of_eager_steps, without_host_sync
from elman.ops.state import keep, map_state, tensors
from elman.ops.taps import listening
from elman.shapes import State

if TYPE_CHECKING:
    from elman.training.update import Updater

WARMUP_UPDATES = 3  # eager updates per batch shape before capture: libraries select kernels and allocate workspaces
MAX_GRAPHS = 64  # with training.jitter nearly all batches have one of this many lengths
DEVICES = ("cuda",)


def obstacle(updater: "Updater") -> str:
    """The reason why no update of this training can be captured, or an empty string."""
    config, device = updater.config, updater.device.type
    has_experts = any(isinstance(layer, Experts) for layer in updater.model.modules())
    reasons = {
        f"the model is on {device}": device not in DEVICES,
        "several processes exchange gradients": updater.world.size > 1,
        "a batch is computed in several pieces": config.micro_batches > 1,
        "the host reads which tokens are masked": prediction_of(updater.model) != "left-to-right",
        "the host reads how many tokens each expert gets": has_experts,
        "the optimizer has no fused form here": not all(group["fused"] for group in updater.optimizer.param_groups),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def make_captured_updates(updater: "Updater") -> "CapturedUpdates | None":
    """None if capture is off or impossible; warns with the reason if it was requested explicitly."""
    requested, reason = updater.config.captured, obstacle(updater)
    if requested and reason:
        warn_of_eager_steps("updates run", reason)
    if requested is False or reason or (requested is None and foreign(updater.model)):
        return None
    return CapturedUpdates(updater)


@dataclass
class StaticBuffers:
    """Inputs and outputs of one graph besides weights and moments, at fixed addresses."""

    batch: Batch
    state: State | None
    norm: Tensor
    graph: Any = None

    def run(self, updater: "Updater") -> None:
        """The captured work."""
        with without_host_sync():
            updater.carried = [self.state]
            updater.compute_update(self.batch)
            if updater.carried[0] is not None and self.state is not None:
                keep(self.state, updater.carried[0])
            self.norm.copy_(updater.norm)

    def replay(self, updater: "Updater", batch: Batch) -> None:
        _copy_in(self.batch.inputs, batch.inputs)
        _copy_in(self.batch.targets, batch.targets)
        if self.state is not None and updater.carried[0] is not self.state:
            keep(self.state, updater.carried[0])
        self.graph.replay()
        updater.carried, updater.norm = [self.state], self.norm


class CapturedUpdates:
    """One graph for each batch shape that came often enough."""

    def __init__(self, updater: "Updater"):
        self.rate = torch.zeros((), device=updater.device)
        self.device = self.rate.device
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_gpu else None
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self.failed, self.memory_low, self.requested = False, False, updater.config.captured is not None
        self.forget()

    def forget(self) -> None:
        """Drop all graphs: the addresses of moments or sums have changed."""
        self.graphs: dict[Any, StaticBuffers] = {}
        self.counts: Counter[Any] = Counter()

    def __call__(self, updater: "Updater", batch: Batch | Examples, rate: float) -> None:
        self.rate.fill_(rate)
        if not self._replay(updater, batch):
            with self._on_capture_stream():
                updater.update_eagerly(batch, self.rate)

    def _replay(self, updater: "Updater", batch: Batch | Examples) -> bool:
        """Run the update as a graph if possible; returns whether it did."""
        if self.failed or listening():
            return False
        if not isinstance(batch, Batch) or batch.lengths is not None:
            if self.requested:
                warn_of_eager_steps("updates run", "rows differ in length")
            return False
        key = _graph_key(batch, updater.carried[0])
        if key not in self.graphs:
            self.counts[key] += 1
            if self.counts[key] <= WARMUP_UPDATES or self._no_more_graphs():
                return False
            buffers = self._capture(updater, batch)
            if buffers is None:
                return False
            self.graphs[key] = buffers
        self._check()
        self.graphs[key].replay(updater, batch)
        return True

    def _no_more_graphs(self) -> bool:
        """Whether the maximum number of graphs is reached or, unless capture was requested, memory is short."""
        self.memory_low = self.memory_low or not (self.requested or _enough_memory(self.device))
        return self.memory_low or len(self.graphs) == MAX_GRAPHS

    @contextmanager
    def _on_capture_stream(self) -> Iterator[None]:
        """Run eager updates on the capture stream, so that per-stream state of autograd and libraries is warm."""
        if self.stream is None:
            yield
            return
        main = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            yield
        main.wait_stream(self.stream)

    def _capture(self, updater: "Updater", batch: Batch) -> StaticBuffers | None:
        """Capture a graph for this batch shape. Capture computes nothing; if it fails, all state is restored."""
        before = carried, norm = updater.carried, updater.norm
        inputs, targets = (part.to(self.device, copy=True) for part in (batch.inputs, batch.targets))
        state = None if carried[0] is None else map_state(torch.clone, carried[0])
        buffers = StaticBuffers(Batch(inputs, targets, None, batch.fresh), state, norm.clone())
        kernel_timeout.of(self.device)  # pinned memory cannot be allocated during capture
        updater.optimizer.zero_grad(set_to_none=True)  # gradients are allocated in the graph's memory pool
        try:
            with _rng_restored_on_failure(self.device), _capturable(updater.optimizer):
                buffers.graph = graph_of(partial(buffers.run, updater), self.stream, self.pool)
        except ElmanError:
            raise
        except Exception as problem:  # of torch, a driver or a compiler
            warn_of_eager_steps("updates run", f"capturing one failed: {_root_cause(problem)}")
            self.failed = True
            updater.optimizer.zero_grad(set_to_none=True)
            updater.renew_scaler()
        finally:
            updater.carried, updater.norm = before
        return None if self.failed else buffers

    def _check(self) -> None:
        """Check the timeout flag, as kernels do before each launch."""
        try:
            kernel_timeout.check(self.device)
        except ElmanError:
            self.forget()  # the graphs would write to a flag that was freed
            raise


def _enough_memory(device: torch.device) -> bool:
    """Whether free memory is at least twice the peak so far: the graphs' pool holds as much as an eager update, and
    eager work beside the graphs, such as validation, needs as much again."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    allowed = torch.cuda.get_per_process_memory_fraction(device) * total - torch.cuda.memory_reserved(device)
    return min(free, allowed) >= 2 * torch.cuda.max_memory_reserved(device)


@contextmanager
def _rng_restored_on_failure(device: torch.device) -> Iterator[None]:
    """Restores the CUDA generator after a failed capture, which would leave it unusable in capture mode."""
    if device.type != "cuda":
        yield
        return
    generator = torch.cuda.default_generators[device.index]
    before = generator.clone_state()
    try:
        yield
    except BaseException:
        generator.graphsafe_set_state(before)
        raise


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Sets Adam's `capturable` flag during capture only: it warns if eager updates have it. Fused Adam computes the
    same either way."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def _graph_key(batch: Batch, carried: State | None) -> Any:
    parts = () if carried is None else tuple((part.shape, part.dtype) for _, part in tensors(carried))
    return batch.inputs.shape, batch.fresh, parts


def _copy_in(buffer: Tensor, values: Tensor) -> None:
    """Copies from pinned memory: from pageable memory, the host would wait for all queued updates."""
    if buffer.is_cuda and not values.is_cuda:
        values = values.pin_memory()
    buffer.copy_(values, non_blocking=True)


def _root_cause(problem: BaseException) -> str:
    """The first exception of the chain: ending a failed capture raises a second one."""
    while problem.__context__ is not None:
        problem = problem.__context__
    return first_line(problem)
