"""Results on stdout (JSON, sentences, tables), and status lines on stderr."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

CLASSES = 20  # shown, the most frequent ones
STATUS_INTERVAL = 15  # seconds between status lines without a terminal


def show_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def status(text: str) -> None:
    """One line on stderr about work that takes a while, on a terminal only."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def note(text: str) -> None:
    """One line on stderr about what was chosen."""
    print(f"note: {text}", file=sys.stderr)


def interrupted(advice: str) -> None:
    with suppress(OSError):  # the terminal is gone
        print(f"interrupted; {advice}", file=sys.stderr)


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Ends the command with exit code 130 where the user interrupts the block."""
    try:
        yield
    except KeyboardInterrupt:
        interrupted(advice)
        raise typer.Exit(130) from None


@contextmanager
def training_status() -> Iterator[Callable[[str, int, int, float], None]]:
    """Status of small trainings: a callback (name, step, steps, loss) that updates a line on a terminal, else prints
    one every 15 seconds."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False)
    printed = time.monotonic()
    with console.status("") as status:

        def listen(name: str, step: int, steps: int, loss: float) -> None:
            nonlocal printed
            line = f"{name}: step {step} of {steps}, loss {loss:.3f}"
            status.update(line)
            if step == steps or (not console.is_terminal and time.monotonic() - printed > STATUS_INTERVAL):
                printed = time.monotonic()
                console.print(line, markup=False)

        with interruptible("nothing was written"):
            yield listen


@contextmanager
def rows_status() -> Iterator[Callable[[int, float], None]]:
    """Status of work on many rows: a callback (rows done, share done) that shows their rate and the time left."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False)
    begun = printed = time.monotonic()
    with console.status("") as status:

        def listen(done: int, share: float) -> None:
            nonlocal printed
            now = time.monotonic()
            line = f"{done:,} rows, {done / max(now - begun, 1e-9):,.0f} per second"
            if share > 0:
                line += f", {share:.0%}, {(now - begun) * (1 - share) / share:,.0f} s left"
            status.update(line)
            if not console.is_terminal and now - printed > STATUS_INTERVAL:
                printed = now
                console.print(line, markup=False)

        with interruptible("the same command goes on where it stopped"):
            yield listen


def say(text: str) -> None:
    """A paragraph wrapped at the width of the terminal."""
    print(textwrap.fill(text, shutil.get_terminal_size().columns))


def table(title: str, columns: list[str], rows: list[list[Any]], wrap: bool = True, lines: bool = False) -> None:
    """A table; without `wrap` long cells are cut, so that each row is one line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(header_style="bold", show_lines=lines, show_header=any(columns))
    for index, column in enumerate(columns):
        justify: Any = "right" if index and _is_numeric(rows, index) else "left"
        shown.add_column(Text(column), justify=justify, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    for row in rows:
        shown.add_row(*(Text(number(cell)) for cell in row))  # text from models and data may look like markup
    console = Console()
    console.print(Text(title, style="bold"))  # not the table's own title, which wraps at the table's width
    console.print(shown)


def agreement_table(title: str, agreement: dict[str, Any]) -> None:
    """Accuracy at marked words of a synthetic language, by their distance to the word that decides them."""
    rows = [[entry["value"], entry["accuracy"] * 100, entry["words"]] for entry in agreement["by_distance"]]
    table(title, ["distance", "accuracy %", "cases"], rows)


def class_table(counts: dict[str, dict[str, int]]) -> None:
    """How often each label or tag occurs in each split; nothing without such classes."""
    names = sorted(first := next(iter(counts.values()), {}), key=lambda name: -first[name])
    totals = {split: max(1, sum(own.values())) for split, own in counts.items()}
    rows = [
        [name, *(f"{(count := own.get(name, 0)):,} ({count / totals[split]:.1%})" for split, own in counts.items())]
        for name in names[:CLASSES]
    ]
    if rows:
        table("Labels or tags", ["", *counts], rows)
    if len(names) > CLASSES:
        print(f"and {len(names) - CLASSES} more")


def number(value: Any) -> str:
    """A table cell: four significant digits, thousands separated, - for None."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int) or (isinstance(value, float) and 1000 <= abs(value) < 1e12):
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measure(key: str, kind: str) -> str:
    """The display name of a score; pseudo-likelihoods are marked, since they do not compare with likelihoods."""
    name = key.replace("_", " ")
    if kind == "pseudo-likelihood":
        name = name.replace("perplexity", "pseudo-perplexity").replace("bits", "pseudo-bits")
    return name


def score_rows(scores: dict[str, Any], kind: str) -> list[list[Any]]:
    """Display name, value and confidence interval of every score."""
    found = []
    for key, value in scores.items():
        if isinstance(value, int | float) and key != "nats":
            interval = scores.get(f"{key}_interval")
            shown = f"{number(interval[0])} to {number(interval[1])}" if interval else ""
            found.append([measure(key, kind), value, shown])
    return found


def _is_numeric(rows: list[list[Any]], index: int) -> bool:
    return all(isinstance(row[index], int | float | None) or "%" in str(row[index]) for row in rows)
