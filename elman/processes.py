"""Signals that ask a process to save and end, and processes that end with their parent."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
HANGUP = getattr(signal, "SIGHUP", None)
POLL = 1.0  # seconds between two looks at the parent

Handler = Callable[[int, Any], Any]


@contextmanager
def stop_signals(handler: Handler) -> Iterator[dict[int, Any]]:
    """Calls `handler` for SIGINT, SIGTERM and SIGHUP in the block; yields the handlers from before.

    A SIGHUP that is ignored (`nohup`) stays ignored. Only the first one counts: a terminal that closes sends several.
    """

    def handle(number: int, frame: Any) -> None:
        if number == HANGUP:
            signal.signal(number, signal.SIG_IGN)
        handler(number, frame)

    before: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread, where signals cannot be handled
        for number in STOP_SIGNALS:
            if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield before
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def tell(text: str) -> None:
    """A line on stderr that is safe in a signal handler; lost where the terminal is gone."""
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())


def under_torchrun() -> bool:
    return "WORLD_SIZE" in os.environ


def end_with_parent() -> None:
    """SIGTERM to this process once its parent has ended, even by SIGKILL, as torchrun's agent may."""
    _watch_parent(os.getpid(), os.getppid())


@cache
def _watch_parent(process: int, parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        tell("the process that started this one has ended")
        os.kill(process, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
