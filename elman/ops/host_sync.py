"""Steps in which the host never waits for a value: what a captured graph asks for.

Code that would look at numbers for a shortcut asks `may_wait` first. Whether all of a function keeps to that is found
by running it once on fake tensors, which have shapes but no numbers: whoever asks for a number, makes a shape of one,
or brings values from the host, is told by name. No GPU is needed to know.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from elman.ops.state import map_state
from elman.shapes import State

FROM_HOST = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}

_may_wait: ContextVar[bool] = ContextVar("may_wait", default=True)
_traced: ContextVar[bool] = ContextVar("traced", default=False)


@contextmanager
def without_host_sync(traced: bool = False) -> Iterator[None]:
    """Inside, nobody may look at a value: the host runs ahead of the device, or is not there at all. `traced`: what is
    done is noted, and will be done again with other values."""
    tokens = _may_wait.set(False), _traced.set(traced)
    try:
        yield
    finally:
        _may_wait.reset(tokens[0])
        _traced.reset(tokens[1])


def may_sync() -> bool:
    return _may_wait.get()


def traced() -> bool:
    return _traced.get()


def find_host_sync(module: nn.Module, function: Callable[..., Any], *states: State) -> str:
    """Why `function(*states)`, which runs `module`, cannot go on without the host; nothing where it can."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(part: Tensor) -> Tensor:
        with mode:
            return torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device=part.device)

    weights = {f"module.{name}": fake(part) for name, part in (*module.named_parameters(), *module.named_buffers())}
    given = tuple(map_state(fake, state) for state in states)
    try:
        with mode, _NothingFromTheHost(), without_host_sync():
            functional_call(_Calling(module, function), weights, given)
    except Exception as problem:  # whatever cannot be done without numbers
        return str(problem).strip().partition("\n")[0][:200] or type(problem).__name__
    return ""


class _Calling(nn.Module):
    """Lets `function` find other weights inside `module`."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *states: State) -> Any:
        return self.function(*states)


class _NothingFromTheHost(TorchDispatchMode):
    """Refuses copies between host and device, which fake tensors allow."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        devices = {part.device.type for part in (*args[:2], found) if isinstance(part, Tensor)}
        if func in FROM_HOST or (func in COPIES and len(devices) > 1):
            raise RuntimeError("values are brought from the host at each step, like those of torch.tensor")
        return found
