"""While small models train one after another: one line that changes, or now and then a new one, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

EVERY = 15  # seconds between two lines where there is no terminal


@contextmanager
def training_line() -> Iterator[Callable[[str, int, int, float], None]]:
    """Who trains, how far, how well, on stderr: one line that changes, or now and then a new one."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False)
    told = time.monotonic()
    with console.status("") as status:

        def listen(name: str, step: int, steps: int, loss: float) -> None:
            nonlocal told
            line = f"{name}: step {step} of {steps}, loss {loss:.3f}"
            status.update(line)
            if step == steps or (not console.is_terminal and time.monotonic() - told > EVERY):
                told = time.monotonic()
                console.print(line, markup=False)

        try:
            yield listen
        except KeyboardInterrupt:
            print("interrupted; nothing was written", file=sys.stderr)
            raise typer.Exit(130) from None
