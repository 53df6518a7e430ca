"""Freed memory goes back to the system."""

import pytest
from processes import environment, run_python

from elman.memory import _trim

KEPT = """
from elman.memory import release_freed
pages = lambda: int(open("/proc/self/statm").read().split()[1])
blocks = [bytes([number % 256]) * 100_000 for number in range(400)]
pinned = bytes(100_000)  # after them: the allocator cannot shorten its heap
del blocks
before = pages()
release_freed()
print(before - pages())
"""


@pytest.mark.skipif(_trim() is None, reason="another allocator than glibc's")
def test_freed_memory_goes_back_to_the_system() -> None:
    """40 MB of blocks in a heap, behind which something is still used."""
    setting = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
    ended = run_python("-c", KEPT, env=environment() | setting, check=True)
    assert int(ended.stdout) * 4096 > 30_000_000
