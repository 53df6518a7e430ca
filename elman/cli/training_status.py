"""Status of small trainings on stderr: a line that is updated on a terminal, else a new line every 15 seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elman.cli import output

INTERVAL = 15  # seconds between lines without a terminal


@contextmanager
def training_status() -> Iterator[Callable[[str, int, int, float], None]]:
    """Gives a callback (name, step, steps, loss) that shows the status."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False)
    printed = time.monotonic()
    with console.status("") as status:

        def listen(name: str, step: int, steps: int, loss: float) -> None:
            nonlocal printed
            line = f"{name}: step {step} of {steps}, loss {loss:.3f}"
            status.update(line)
            if step == steps or (not console.is_terminal and time.monotonic() - printed > INTERVAL):
                printed = time.monotonic()
                console.print(line, markup=False)

        with output.interruptible("nothing was written"):
            yield listen
