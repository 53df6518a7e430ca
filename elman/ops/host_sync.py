"""Host synchronisation: code that reads tensor values blocks the host; it cannot be traced or captured as a CUDA graph.

Code with a data-dependent shortcut asks `may_sync` first. `find_host_sync` checks a function by running it on fake
tensors, which have shapes but no values: reading a value, a data-dependent shape or a copy from the host is an error
there. This needs no GPU. `graph_of` captures a step as a CUDA graph.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from elman.ops.state import map_state
from elman.ops.taps import setting
from elman.ops.transforms import compiling, transformation
from elman.shapes import State

FROM_HOST = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}

_may_sync: ContextVar[bool] = ContextVar("may_sync", default=True)
_traced: ContextVar[bool] = ContextVar("traced", default=False)


@contextmanager
def without_host_sync(traced: bool = False) -> Iterator[None]:
    """Inside, `may_sync` is false: values must not be read. `traced`: operations are recorded for other values."""
    with setting(_may_sync, False), setting(_traced, traced):
        yield


def may_sync() -> bool:
    return not compiling() and _may_sync.get() and transformation() is None


def traced() -> bool:
    return not compiling() and _traced.get()


def find_host_sync(module: nn.Module, function: Callable[..., Any], *states: State) -> str:
    """Where `function(*states)`, which runs `module`, synchronises with the host; empty if nowhere."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(part: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device=part.device)

    weights = {f"module.{name}": fake(part) for name, part in (*module.named_parameters(), *module.named_buffers())}
    given = tuple(map_state(fake, state) for state in states)
    try:
        with mode, _RejectHostCopies(), without_host_sync():
            functional_call(FunctionModule(module, function), weights, given)
    except Exception as problem:  # fake tensors raise various errors
        return str(problem).strip().partition("\n")[0][:200] or type(problem).__name__
    return ""


class FunctionModule(nn.Module):
    """A module whose `forward` is `function`, which runs `module`: `functional_call` replaces weights of `module`."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *states: State) -> Any:
        return self.function(*states)


class _RejectHostCopies(TorchDispatchMode):
    """Rejects copies between host and device, which fake tensors allow."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        devices = {part.device.type for part in (*args[:2], result) if isinstance(part, Tensor)}
        if func in FROM_HOST or (func in COPIES and len(devices) > 1):
            raise RuntimeError("values are copied from the host at each step, as by torch.tensor")
        return result


def graph_of(step: Callable[[], None], stream: Any, pool: Any = None) -> Any:
    """The CUDA graph of a step that was warmed up on this stream; a failed capture leaves stream and memory pool clean.

    Graphs of one pool share memory: results of one are invalid after another has run.
    """
    graph, pool = torch.cuda.CUDAGraph(), pool or torch.cuda.graph_pool_handle()
    try:  # the outer stream context, since torch stays on the capture stream after a failure
        with torch.cuda.stream(stream), torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            step()
    except BaseException:
        with suppress(RuntimeError):  # some torch versions also keep allocating to the pool; others have ended it
            torch._C._cuda_endAllocateToPool(stream.device_index, pool)
        raise
    return graph


@cache
def warn_of_eager_steps(what: str, reason: str) -> None:
    """Once for each reason."""
    warnings.warn(f"{what} without a CUDA graph, more slowly: {reason}", stacklevel=3)
