"""Figures drawn with matplotlib, for SVG and PNG: panels below each other, each drawn by its own kind."""

import io
import textwrap
from typing import TYPE_CHECKING, Any

from elman.figures.fonts import drawable, families

if TYPE_CHECKING:
    from elman.figures.figure import Figure


def render(figure: "Figure", suffix: str) -> bytes:
    """As `svg` or `png`: the same figure gives the same bytes."""
    import matplotlib

    out = io.BytesIO()
    about: dict[str, str | None] = {
        "Title": figure.title,
        "Description": " ".join([figure.subtitle, figure.command]).strip(),
    }
    about |= {"Date": None} if suffix == "svg" else {}
    with matplotlib.rc_context({"font.family": _fonts(figure), "svg.hashsalt": "elman"}):
        canvas(figure).savefig(out, format=suffix, dpi=150, metadata=about, bbox_inches="tight")
    return out.getvalue()


def canvas(figure: "Figure") -> Any:
    """A matplotlib figure: title, panels with their titles, then notes and command in small print."""
    from matplotlib.figure import Figure as Canvas  # imported late, as it is slow; no global backend is touched

    sizes = [panel.size or panel.inches() for panel in figure.panels]
    width = max(wide for wide, _ in sizes)
    foot = _foot(figure, width)
    heights = [height for _, height in sizes] + ([0.2 * len(foot) + 0.1] if foot else [])
    whole = Canvas(figsize=(width, sum(heights) + (0.4 if figure.title else 0.0)), layout="constrained")
    text: dict[str, Any] = {"x": 0.01, "ha": "left", "parse_math": False}
    if figure.title:
        whole.suptitle(drawable(figure.title), **text)
    parts = whole.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, panel in zip(parts, figure.panels, strict=False):
        panel.draw(part, figure.styles)
        if panel.title:
            part.suptitle(drawable(panel.title), fontsize="medium", **text)
    if foot:
        small: dict[str, Any] = {"va": "top", "fontsize": 8, "color": "#444444", "parse_math": False}
        parts[-1].text(0.01, 0.95, "\n".join(foot), **small)
    return whole


def _foot(figure: "Figure", width: float) -> list[str]:
    sentences = [figure.subtitle, *figure.notes, figure.prompt]
    return [line for sentence in sentences if sentence for line in textwrap.wrap(drawable(sentence), int(width * 13))]


def _fonts(figure: "Figure") -> list[str]:
    texts = [figure.title, figure.subtitle, figure.command, *figure.notes]
    texts += [text for panel in figure.panels for text in (panel.title, *panel.texts())]
    return families(map(drawable, texts))
