"""Figures: one description of a plot, saved as SVG, PNG, HTML, CSV or JSON, or shown in a terminal or notebook."""

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from elman.errors import ConfigError
from elman.figures.colours import Palette, assign_styles
from elman.figures.panels import Panel
from elman.files import atomic_write, make_folder

IMAGES = ("svg", "png")
FORMATS = (*IMAGES, "html", "csv", "json", "txt")


@dataclass(frozen=True)
class Figure:
    """Panels below each other, with notes that say in words what they show."""

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    subtitle: str = ""
    """What it shows: a run, a task and a step."""
    command: str = field(default="", kw_only=True)
    """The shell command or Python call that makes it again."""
    palette: Palette | None = field(default=None, kw_only=True)
    """Styles that it shares with other figures of its page."""

    def with_command(self, command: str) -> Self:
        """A copy with the command that makes it again."""
        return replace(self, command=command)

    @property
    def prompt(self) -> str:
        """The command behind `$`, or the Python call behind `>>>`."""
        sign = "$" if self.command.startswith("elman ") else ">>>"
        return f"{sign} {self.command}" if self.command else ""

    @property
    def styles(self) -> Palette:
        """Colour, marker and dash of each series."""
        return assign_styles(panel.series for panel in self.panels) if self.palette is None else self.palette

    @property
    def data(self) -> list[dict[str, Any]]:
        """Every value with its labels, one dictionary each."""
        rows = []
        for panel in self.panels:
            table = panel.table()
            heads = [str(head) for head in next(table)]
            rows += [{"panel": panel.title, **dict(zip(heads, row, strict=True))} for row in table]
        return rows

    def save(self, path: str | Path) -> Path:
        """Written atomically, in the format of the suffix."""
        path = Path(path)
        content: str | bytes
        match path.suffix.lstrip(".").lower():
            case "svg" | "png" as suffix:
                content = self.image(suffix)
            case "html":
                content = self.html()
            case "csv":
                content = self.csv()
            case "json":
                content = json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n"
            case "txt":
                content = self.text(width=120) + (f"{self.prompt}\n" if self.command else "")
            case _:
                raise ConfigError(f"{path}: a figure is saved as {', '.join(f'.{name}' for name in FORMATS)}")
        _write(path, content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    def save_images(self, path: Path) -> list[Path]:
        """Beside each other as .svg and .png, under the name of the path without suffix."""
        paths = [path.with_name(f"{path.name}.{suffix}") for suffix in IMAGES]
        for place, content in zip(paths, self._images(*IMAGES), strict=True):
            _write(place, content)
        return paths

    def image(self, suffix: str) -> bytes:
        """The figure as `svg` or `png`."""
        return self._images(suffix)[0]

    def _images(self, *suffixes: str) -> list[bytes]:
        from elman.figures.drawing import render

        return render(self, suffixes)

    def plot(self) -> Any:
        """The figure as one of matplotlib, whose axes can be changed; `savefig` writes it."""
        from elman.figures.drawing import canvas, drawing_style

        with drawing_style(self):
            return canvas(self)

    def html(self) -> str:
        """The figure as a self-contained HTML page."""
        from elman.figures.render_html import page

        return page(self.title, [replace(self, title="")])

    def text(self, width: int = 100, colour: bool = False) -> str:
        """Title, panels and notes for a terminal of this many columns, with ANSI colours if asked."""
        lines = [self.title, *([self.subtitle] if self.subtitle else []), ""]
        for panel in self.panels:
            lines += [*([panel.title] if panel.title else []), *panel.text(width, colour), ""]
        for note in self.notes:
            lines += textwrap.wrap(note, width)
        return "\n".join(line if colour else line.rstrip() for line in lines).rstrip() + "\n"

    def csv(self) -> str:
        """A table for each panel under its title, a blank line between two, the command at the end."""
        out = io.StringIO()
        for panel in self.panels:
            out.write(f"# {' '.join((panel.title or self.title).split())}\n")
            csv.writer(out, lineterminator="\n").writerows(panel.table())
            out.write("\n" if panel is not self.panels[-1] else "")
        out.write(f"# {self.prompt}\n" if self.command else "")
        return out.getvalue()

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        about = {"title": self.title, "of": self.subtitle, "command": self.command, "notes": list(self.notes)}
        return {**about, "panels": [panel.plain() for panel in self.panels]}

    def show(self) -> None:
        """Print it in the terminal."""
        print(self.text())

    def _repr_html_(self) -> str:
        from elman.figures.render_html import block

        return block(self, tables=False)

    def _repr_png_(self) -> bytes:
        return self.image("png")

    def __repr__(self) -> str:
        return f"<{self.title}: {', '.join(panel.kind for panel in self.panels)}>"


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    atomic_write(path, content)


def share_palette(figures: Iterable[Figure], labels: Sequence[str] = ()) -> list[Figure]:
    """The figures of one page, with one style for each label; `labels` come first, in their order."""
    figures = list(figures)
    palette = assign_styles([labels, *(panel.series for figure in figures for panel in figure.panels)])
    return [replace(figure, palette=palette) for figure in figures]
