"""HTML pages of figures, tables and text in one self-contained file, for phones, desktops, paper and screen readers.

Figures are inline SVG whose text stays text. Wide figures scroll sideways on a phone, and each row of a table becomes
a card there; ARIA roles keep it a table for screen readers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elman.figures.figure import Figure

ROWS = 400  # of a table of values at most; the .csv has all
SMALL = 400  # points: figures up to this width are scaled to their column, wider ones scroll on a phone
STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.35; margin: 0.5rem 0; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 0.4rem; }
h3 { font-size: 1rem; margin: 0.4rem 0; }
.facts { color: #4a4a4a; }
.columns { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
.columns.narrow { grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); }
figure { margin: 0; }
figure svg { display: block; max-width: 100%; height: auto; }
figure.small svg { width: 100%; }
figcaption, caption { color: #4a4a4a; font-size: 0.875rem; text-align: left; }
figcaption p { margin: 0.2rem 0; }
caption { padding-bottom: 0.4rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 3px solid #0072b2; }
details { margin: 0.5rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.45rem; border-bottom: 1px solid #d0d0d0; text-align: right; vertical-align: top; }
.cards:not(.words, .texts) td:not(:last-child) { white-space: nowrap; }
thead th { border-bottom: 2px solid #4a4a4a; vertical-align: bottom; }
tbody th, thead th:first-child, .words td, .words thead th { text-align: left; }
.texts tbody th, .values tbody th { font-weight: normal; }
pre { background: #f3f3f3; padding: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.4; }
pre code { display: inline-block; padding-left: 1.5em; text-indent: -1.5em; }
ul { padding-left: 1.2rem; }
h1, li, td, th, p { overflow-wrap: break-word; }
@media screen and (max-width: 48rem) {
  figure:not(.small) svg { max-width: none; } /* letters stay readable: the figure scrolls */
  .cards table, .cards caption, .cards tbody, .cards tr, .cards tbody th, .cards td { display: block; }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards tr { border-bottom: 2px solid #4a4a4a; padding: 0.5rem 0; }
  .cards tbody th, .cards td { border: 0; padding: 0.1rem 0; }
  .cards td { display: flex; justify-content: space-between; gap: 1rem; text-align: right; }
  .cards td::before { content: attr(data-name); color: #4a4a4a; text-align: left; }
  .cards td:empty { display: none; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .columns { grid-template-columns: 1fr 1fr; }
  figure, tr { break-inside: avoid; }
  h2, caption { break-after: avoid; }
  .scroll { overflow: visible; }
  details { display: none; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.3rem; }
}
"""


def page(title: str, parts: Iterable["Figure | str"], heading: str = "") -> str:
    """A whole document; parts are HTML, or figures, which then share one palette. `heading` is HTML."""
    from elman.figures.figure import share_palette

    parts = list(parts)
    figures = iter(share_palette(part for part in parts if not isinstance(part, str)))
    body = "\n".join(part if isinstance(part, str) else block(next(figures)) for part in parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{heading or escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str, name: str) -> str:
    """Content under a heading; `name` is its id."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>\n{content}\n</section>'


def block(figure: "Figure", tables: bool = True, name: str = "") -> str:
    """A figure under its title, with its notes as a caption, its values as tables and its command."""
    drawing = replace(figure, title="", notes=(), subtitle="", command="")  # these stand beside it as text
    svg, width = _inline_svg(drawing)
    name = name or f"figure-{sha256(svg.encode()).hexdigest()[:12]}"
    svg = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", svg)  # ids are unique on the page
    kinds = ", ".join(panel.title or panel.kind for panel in figure.panels)
    words = "".join(f"<p>{escape(text)}</p>" for text in (figure.subtitle, *figure.notes) if text)
    about = f' aria-describedby="{name}-words"' if words else ""
    label = escape(f"{figure.title}: {kinds}" if figure.title and tables else figure.title or kinds)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"{about}', 1)
    caption = f'<figcaption id="{name}-words">{words}</figcaption>' if words else ""
    if width > SMALL:
        svg = f'<div class="scroll" role="group" aria-label="{label}" tabindex="0">{svg}</div>'
    # the width is on the figure itself for pages of others, such as notebooks, which may shrink figures to their words
    small = ' class="small" style="width: min(38rem, 100%)"' if width <= SMALL else ""
    content = f"<figure{small}>{svg}{caption}</figure>"
    content += _value_tables(figure) if tables else ""
    content += f"<pre>{escape(figure.command)}</pre>" if figure.command and tables else ""
    return section(figure.title, content, name) if figure.title else content


def _inline_svg(figure: "Figure") -> tuple[str, float]:
    """Without XML header, metadata and the empty title, which parsers of HTML take for an open one; its width in
    points."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        svg = figure.image("svg").decode()
    svg = re.sub(r"\s*(<metadata>.*?</metadata>|<title/>)", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    width = float(re.findall(r'<svg[^>]*? width="([\d.]+)pt"', svg)[0])
    if width <= SMALL:
        svg = re.sub(r"<svg[^>]*>", lambda tag: re.sub(r' (width|height)="[^"]*"', "", tag[0]), svg, count=1)
    return svg.rstrip(), width


def _value_tables(figure: "Figure") -> str:
    """A closed table of the values of each panel."""
    parts = []
    for panel in figure.panels:
        rows = panel.table()
        heads, body = [str(head) for head in next(rows)], list(rows)
        left = f"<p>{len(body) - ROWS:,} more rows: save the figure as .csv.</p>" if len(body) > ROWS else ""
        name = escape(panel.title or (figure.title if len(figure.panels) == 1 else "") or panel.kind)
        top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
        lines = ("".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row) for row in body[:ROWS])
        shown = f"<table><thead><tr>{top}</tr></thead>\n<tbody>{_rows(lines)}</tbody></table>"
        region = f'<div class="scroll words" role="group" aria-label="Values: {name}" tabindex="0">{shown}</div>'
        parts.append(f"<details><summary>Values: {name}</summary>{region}{left}</details>")
    return "\n".join(parts)


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]], style: str = "") -> str:
    """A table whose rows begin with their name.

    `style` is "words" for columns of text, aligned left, "texts" for names that are sentences, "values" for both.
    """
    top = "".join(f'<th scope="col" role="columnheader">{escape(head)}</th>' for head in heads)
    lines = []
    for first, *cells in rows:
        line = f'<th scope="row" role="rowheader">{escape(cell_text(first))}</th>'
        for head, cell in zip(heads[1:], cells, strict=True):
            line += f'<td role="cell" data-name="{escape(head)}">{escape(cell_text(cell))}</td>'
        lines.append(line)
    head = f'<thead role="rowgroup"><tr role="row">{top}</tr></thead>'
    body = f"<tbody role='rowgroup'>{_rows(lines, ' role=row')}</tbody>"
    label = escape(caption.partition(".")[0])
    return (
        f'<div class="scroll cards {style}" role="region" tabindex="0" aria-label="{label}">'
        f'<table role="table"><caption>{escape(caption)}</caption>{head}\n{body}</table></div>'
    )


def _rows(lines: Iterable[str], role: str = "") -> str:
    return "\n".join(f"<tr{role}>{line}</tr>" for line in lines)


def cell_text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
