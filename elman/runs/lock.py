"""One writer per run folder: a lock that the system drops with the process, however it ends."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elman.errors import RunError
from elman.runs.files import RunWarning

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()


def _leave_to_the_parent() -> None:
    """A forked worker that outlives a killed trainer must not keep its lock."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock file, or raise RunError naming the process that does. False where files cannot be locked at all."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(f"{path}: cannot open the lock: {error.strerror}") from error
    _held.add(descriptor)
    try:
        yield _take(descriptor, path)
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)


def _take(descriptor: int, path: Path) -> bool:
    try:
        if fcntl is None:
            raise OSError("no fcntl")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        raise RunError(f"{path.parent}: in use by process {holder}; stop it, or give another --run") from None
    except OSError:
        warnings.warn(
            f"{path.parent}: cannot be locked here; do not train in it twice at once", RunWarning, stacklevel=5
        )
        return False
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return True
