"""One writer per run folder: an advisory file lock that the operating system releases with the process."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elman.errors import RunError
from elman.files import RunWarning, unlinked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

POLL = 0.1  # seconds
_held: set[int] = set()


def _release_in_child() -> None:
    """A forked worker that outlives a killed trainer must not keep its lock."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Holds the lock file; RunError names the process that holds it. Yields False if locking is not supported."""
    try:
        descriptor = unlinked(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise RunError(f"{path}: cannot open the lock: {error.strerror}") from error
    _held.add(descriptor)
    try:
        yield _acquire(descriptor, path)
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> bool:
    try:
        if fcntl is None:
            raise OSError("no fcntl")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        raise RunError(f"{path.parent}: in use by process {holder}; stop it, or use another --run") from None
    except OSError:
        warnings.warn(
            f"{path.parent}: no file locking here; do not train in it twice at the same time", RunWarning, stacklevel=5
        )
        return False
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return True


def wait_for_lock(path: Path, seconds: float) -> None:
    """Until no process holds a lock file; not longer than so many seconds."""
    until = time.monotonic() + seconds
    while is_held(path) and time.monotonic() < until:
        time.sleep(POLL)


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file, as far as that can be known."""
    if fcntl is None or not path.exists():
        return False
    descriptor = unlinked(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no file locking here
    finally:
        os.close(descriptor)
    return False
