"""One description of a picture, shown anywhere: terminal, SVG, PNG, a page of HTML, CSV, JSON, a notebook."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elman.errors import ConfigError
from elman.figures.panels import Panel
from elman.runs.files import atomic_write, make_folder

FORMATS = ("svg", "png", "html", "csv", "json", "txt")


@dataclass(frozen=True)
class Figure:
    """Panels one above the other, what they say in words, of what they are, and the command or call that made them."""

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    of: str = ""
    command: str = field(default="", kw_only=True)

    def by(self, command: str) -> "Figure":
        """A copy that names the command behind it."""
        return replace(self, command=command)

    @property
    def made_by(self) -> str:
        """The command, or the call of Python, behind its prompt; nothing where it is not known."""
        prompt = "$" if self.command.startswith("elman ") else ">>>"
        return f"{prompt} {self.command}" if self.command else ""

    @property
    def data(self) -> list[dict[str, Any]]:
        """Every number with its names."""
        found = []
        for panel in self.panels:
            rows = panel.table()
            heads = next(rows)
            found += [{"panel": panel.title, **dict(zip(map(str, heads), row, strict=True))} for row in rows]
        return found

    def save(self, path: str | Path) -> Path:
        """Written whole or not at all, in the format of its suffix."""
        path = Path(path)
        make = self._format(path.suffix.lstrip(".").lower(), path)
        make_folder(path.parent)
        atomic_write(path, make())
        return path

    def _format(self, suffix: str, path: Path) -> Callable[[], bytes]:
        known: dict[str, Callable[[], bytes]] = {
            "svg": lambda: self.image("svg"),
            "png": lambda: self.image("png"),
            "html": lambda: self.html().encode("utf-8"),
            "csv": lambda: self.csv().encode(),
            "json": lambda: (json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n").encode("utf-8"),
            "txt": lambda: "".join([self.text(width=120), f"{self.made_by}\n" if self.command else ""]).encode(),
        }
        if suffix not in known:
            raise ConfigError(f"{path}: a picture is written as {', '.join(f'.{name}' for name in FORMATS)}")
        return known[suffix]

    def image(self, kind: str) -> bytes:
        """The figure as SVG or PNG."""
        from elman.figures.render_matplotlib import draw

        return draw(self, kind)

    def html(self) -> str:
        """The figure as an HTML page in one file."""
        from elman.figures.render_html import page

        return page(self.title, [self])

    def text(self, width: int = 100, colour: bool = False) -> str:
        """For a terminal."""
        from elman.figures.render_text import text

        return text(self, width, colour)

    def csv(self) -> str:
        """A table for each panel, a blank line between two; remarks are the title above each, and the command."""
        out = io.StringIO()
        for panel in self.panels:
            out.write(f"# {' '.join((panel.title or self.title).split())}\n")
            csv.writer(out, lineterminator="\n").writerows(panel.table())
            out.write("\n" if panel is not self.panels[-1] else "")
        out.write(f"# {self.made_by}\n" if self.command else "")
        return out.getvalue()

    def plain(self) -> dict[str, Any]:
        """Title, notes and all values, as JSON values."""
        facts = {"title": self.title, "of": self.of, "command": self.command, "notes": list(self.notes)}
        return {**facts, "panels": [panel.plain() for panel in self.panels]}

    def show(self) -> None:
        """In the terminal."""
        print(self.text())

    def _repr_html_(self) -> str:
        from elman.figures.render_html import block

        return block(self, numbers=False)

    def _repr_png_(self) -> bytes:
        return self.image("png")

    def __repr__(self) -> str:
        kinds = ", ".join(panel.kind for panel in self.panels)
        return f"<{self.title}: {kinds}>"
