"""Updates on a GPU as one captured graph: forward, backward and the rule's step, at addresses that never change.

A plain update launches hundreds of kernels, and the GPU waits for the host. Here the first updates of a kind (so many
rows of such a length) run plainly, for practice; then one is captured, and each that follows is a copy of its words and
one launch. Weights and moments stay where they are; words, learning rate, carried states and the norm get places of
their own. All graphs use the same memory, one after another.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elman.batches import Batch, Examples
from elman.errors import ElmanError
from elman.layers.experts import Experts
from elman.layers.laws import foreign
from elman.models import prediction_of
from elman.ops import kernel_timeout
from elman.ops.cuda_graph import graph_of
from elman.ops.host_sync import without_host_sync
from elman.ops.state import keep, map_state, tensors
from elman.ops.taps import listening
from elman.shapes import State

if TYPE_CHECKING:
    from elman.training.update import Updater

WARM = 3  # plain updates of one kind before it is captured, in which libraries choose and allocate what they need
MOST = 64  # graphs: with training.jitter nearly all batches have one of so many lengths
DEVICES = ("cuda",)

_warned: set[str] = set()


def obstacle(updater: "Updater") -> str:
    """Why no update of this training can be captured; nothing if some can."""
    config, device = updater.config, updater.device.type
    found = {
        f"the model is on {device}": device not in DEVICES,
        "several processes exchange gradients": updater.world.size > 1,
        "a batch is computed in several pieces": config.micro_batches > 1,
        "which words are hidden is looked up by the host": prediction_of(updater.model) != "left-to-right",
        "how many words an expert gets is looked up by the host": any(
            isinstance(layer, Experts) for layer in updater.model.modules()
        ),
        "the update rule has no fused form here": not all(group["fused"] for group in updater.optimizer.param_groups),
    }
    return next((reason for reason, holds in found.items() if holds), "")


def captured_updates(updater: "Updater") -> "Captured | None":
    """None where nothing is to be captured or can be; who has asked for it is told why."""
    asked, reason = updater.config.captured, obstacle(updater)
    if asked and reason:
        _tell(reason)
    if asked is False or reason or (asked is None and foreign(updater.model)):
        return None
    return Captured(updater)


@dataclass
class StaticBuffers:
    """All that the updates of one kind read and write besides weights and moments, and their graph."""

    batch: Batch
    state: State | None
    norm: Tensor
    graph: Any = None

    def change(self, updater: "Updater") -> None:
        """What is captured."""
        with without_host_sync():
            updater.carried = [self.state]
            updater.change(self.batch)
            if updater.carried[0] is not None and self.state is not None:
                keep(self.state, updater.carried[0])
            self.norm.copy_(updater.norm)

    def replay(self, updater: "Updater", batch: Batch) -> None:
        _put(self.batch.inputs, batch.inputs)
        _put(self.batch.targets, batch.targets)
        if self.state is not None and updater.carried[0] is not self.state:
            keep(self.state, updater.carried[0])
        self.graph.replay()
        updater.carried, updater.norm = [self.state], self.norm


class Captured:
    """The graphs of all kinds of updates that came often enough."""

    def __init__(self, updater: "Updater"):
        self.rate = torch.zeros((), device=updater.device)
        self.device = self.rate.device
        on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_gpu else None
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self.failed, self.scarce, self.asked = False, False, updater.config.captured is not None
        self.forget()

    def forget(self) -> None:
        """All graphs, since moments or sums are no longer where they were."""
        self.kinds: dict[Any, StaticBuffers] = {}
        self.times: Counter[Any] = Counter()

    def __call__(self, updater: "Updater", batch: Batch | Examples, rate: float) -> None:
        self.rate.fill_(rate)
        if not self._replay(updater, batch):
            with self._aside():
                updater.plainly(batch, self.rate)

    def _replay(self, updater: "Updater", batch: Batch | Examples) -> bool:
        """Make the update if a graph can; whether it did."""
        if self.failed or listening():
            return False
        if not isinstance(batch, Batch) or batch.lengths is not None:
            if self.asked:
                _tell("rows differ in length")
            return False
        kind = _kind(batch, updater.carried[0])
        if kind not in self.kinds:
            self.times[kind] += 1
            if self.times[kind] <= WARM or self._full():
                return False
            places = self._capture(updater, batch)
            if places is None:
                return False
            self.kinds[kind] = places
        self._check()
        self.kinds[kind].replay(updater, batch)
        return True

    def _full(self) -> bool:
        """Whether there is room for no more graphs, of which only who has asked for them takes the last."""
        self.scarce = self.scarce or not (self.asked or _roomy(self.device))
        return self.scarce or len(self.kinds) == MOST

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Plain updates on the stream of captures: what autograd and libraries keep for a stream is then there."""
        if self.stream is None:
            yield
            return
        main = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            yield
        main.wait_stream(self.stream)

    def _capture(self, updater: "Updater", batch: Batch) -> StaticBuffers | None:
        """A graph for batches of this kind. Nothing is computed here; where it fails, all is as before."""
        before = carried, norm = updater.carried, updater.norm
        inputs, targets = (part.to(self.device, copy=True) for part in (batch.inputs, batch.targets))
        state = None if carried[0] is None else map_state(torch.clone, carried[0])
        places = StaticBuffers(Batch(inputs, targets, None, batch.fresh), state, norm.clone())
        kernel_timeout.of(self.device)  # pinned memory cannot be had during a capture
        updater.optimizer.zero_grad(set_to_none=True)  # gradients get places in the graph's own memory
        try:
            with _dice(self.device), _capturable(updater.optimizer):
                places.graph = graph_of(partial(places.change, updater), self.stream, self.pool)
        except ElmanError:
            raise
        except Exception as problem:  # of torch, a driver or a compiler
            _tell(f"capturing one failed: {_cause(problem)}")
            self.failed = True
            updater.optimizer.zero_grad(set_to_none=True)
            updater.renew_scaler()
        finally:
            updater.carried, updater.norm = before
        return None if self.failed else places

    def _check(self) -> None:
        """What kernels do before each launch."""
        try:
            kernel_timeout.check(self.device)
        except ElmanError:
            self.forget()  # graphs would write to an alarm that is gone
            raise


def _roomy(device: torch.device) -> bool:
    """Whether there is twice as much memory left as was ever taken: graphs keep to themselves what an update takes, and
    all that runs beside them, like a validation, needs as much again."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    allowed = torch.cuda.get_per_process_memory_fraction(device) * total - torch.cuda.memory_reserved(device)
    return min(free, allowed) >= 2 * torch.cuda.max_memory_reserved(device)


@contextmanager
def _dice(device: torch.device) -> Iterator[None]:
    """A capture that fails leaves torch's generator in the midst of it, where no dice can be thrown any more."""
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
    """Adam wants to be told; and warns if it is told for updates that are not captured. Fused, it does the same."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def _kind(batch: Batch, carried: State | None) -> Any:
    parts = () if carried is None else tuple((part.shape, part.dtype) for _, part in tensors(carried))
    return batch.inputs.shape, batch.fresh, parts


def _put(place: Tensor, values: Tensor) -> None:
    """From pinned memory, since else the host would wait for all updates under way."""
    if place.is_cuda and not values.is_cuda:
        values = values.pin_memory()
    place.copy_(values, non_blocking=True)


def _cause(problem: BaseException) -> str:
    """What came first: ending a broken capture fails once more."""
    while problem.__context__ is not None:
        problem = problem.__context__
    return str(problem).strip().partition("\n")[0] or type(problem).__name__


def _tell(reason: str) -> None:
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"updates are made without a captured graph, more slowly: {reason}", stacklevel=3)
