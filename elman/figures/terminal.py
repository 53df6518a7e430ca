"""Helpers for figures as terminal text: cells of block characters or background colours, labels that fit."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from elman.figures.colours import Scale, is_light

EIGHTHS = " ▁▂▃▄▅▆▇█"
PARTIAL = " ▏▎▍▌▋▊▉"
LABEL = 14  # columns for labels of rows
RESET = "\x1b[0m"


def cell(value: float, scale: Scale, limits: tuple[float, float], colour: bool = False) -> str:
    """A value as a block of eighths, with its sign on diverging scales; with `colour` as a coloured background."""
    if not math.isfinite(value):
        return "?" * cell_width(scale)
    if colour:
        return paint(" " * cell_width(scale), scale.rgb(value, limits))
    low, high = limits
    if scale.diverging:
        size = round(min(abs(value) / max(abs(low), abs(high)), 1) * 8)
        return " ·" if size == 0 else f"{'+' if value > 0 else '-'}{EIGHTHS[size]}"
    return EIGHTHS[round(min(max((value - low) / (high - low), 0), 1) * 8)]


def cell_width(scale: Scale) -> int:
    return 2 if scale.diverging else 1


def paint(text: str, rgb: tuple[float, float, float]) -> str:
    """Text on a background colour, black or white by its luma."""
    ink = (0, 0, 0) if is_light(rgb) else (255, 255, 255)
    back = ";".join(str(round(255 * part)) for part in rgb)
    return f"\x1b[48;2;{back}m\x1b[38;2;{';'.join(map(str, ink))}m{text}"


def bar(share: float, room: int) -> str:
    """A horizontal bar of up to `room` columns, in steps of an eighth."""
    filled = min(share, 1) * room
    return "█" * int(filled) + PARTIAL[int(filled % 1 * 8)]


def column_labels(names: Sequence[str], width: int) -> Iterator[str]:
    """Labels of columns, each `width` wide: numbers at every tenth column, others from top to bottom."""
    margin = " " * (LABEL + 1)
    if all(name.isdigit() for name in names):
        line = ""
        for column in range(0, len(names), 10):
            if len(line) <= column * width:
                line = line.ljust(column * width) + names[column]
        if len(names) > 1:
            yield margin + line
        return
    height = min(max(map(len, names), default=0), 8)
    for row in range(height):
        letters = [name[:height].rjust(height)[row] for name in names]
        yield margin + "".join(letter.rjust(width) if cell_len(letter) == 1 else letter for letter in letters)


def visible(token: str) -> str:
    """A token with its white space and control characters made visible."""
    signs = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    shown = "".join(signs.get(sign, sign if sign.isprintable() else "\ufffd") for sign in token)
    return "␣" if shown == " " else shown or "∅"


def fit(text: str, width: int = LABEL) -> str:
    """A token in exactly this many columns."""
    text = visible(text)
    return set_cell_size(text if cell_len(text) <= width else text[: width - 1] + "…", width)


def supports_colour(stream: Any) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) and "NO_COLOR" not in os.environ
