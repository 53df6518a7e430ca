"""Captures a step as a CUDA graph; a failed capture leaves the stream and the memory pool clean."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import torch


def graph_of(step: Callable[[], None], stream: Any, pool: Any = None) -> Any:
    """The graph of a step that was warmed up on this stream. Graphs of one pool share memory: results of one are
    invalid after another has run."""
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
