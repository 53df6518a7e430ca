"""A step as a CUDA graph, and a stream as it was where that fails."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch


def graph_of(step: Callable[[], None], stream: Any, pool: Any = None) -> Any:
    """The graph of a step that has been practised on this stream. Graphs of one pool use the same memory: then nothing
    that one of them leaves there is still there after another."""
    graph, pool = torch.cuda.CUDAGraph(), pool or torch.cuda.graph_pool_handle()
    try:  # the outer stream, since torch does not leave that of a capture that fails
        with torch.cuda.stream(stream), torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            step()
    except BaseException:
        with suppress(RuntimeError):  # nor, in some versions, its memory; in others it has
            torch._C._cuda_endAllocateToPool(stream.device_index, pool)
        raise
    return graph
