"""Memory that the allocator keeps after it was freed."""

import ctypes
from functools import cache
from typing import Any


def release_freed() -> None:
    """Gives freed memory back to the system, where the allocator is glibc's.

    It keeps freed memory for each thread, in pieces that tensors of another size do not fit into: a process that
    computes batches of many sizes would grow for a long time.
    """
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another allocator, or another system
        return None
