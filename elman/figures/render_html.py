"""A page of pictures in one file: nothing is fetched, every picture has its words and its numbers beside it."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elman.figures.figure import Figure

ROWS = 400  # of a table of numbers; more are for .csv
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2rem }
figure { margin: 1.5rem 0 } figure img { max-width: 100%; height: auto } figcaption { color: #444 }
pre { background: #f4f4f4; padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem }
details { margin: .5rem 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .85rem }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left }
.yes { color: #005a3c } .no { color: #9c2a00 }
@media (max-width: 40rem) { figure img { max-width: none } } /* letters stay readable: the picture scrolls */
@media print { body { margin: 0; max-width: none } details { display: none } }
"""


def page(title: str, parts: Iterable["Figure | str"], before: str = "") -> str:
    """A whole document; parts are pictures, or HTML of their own."""
    body = "\n".join(part if isinstance(part, str) else block(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{before}{body}\n</main>\n</body>\n</html>\n"
    )


def block(figure: "Figure", numbers: bool = True) -> str:
    """One picture with its caption, its numbers and its command."""
    words = [escape(word) for word in (figure.of, *figure.notes) if word]
    kinds = ", ".join(panel.title or panel.kind for panel in figure.panels)
    told = escape(f"{figure.title}: {kinds}. {' '.join(figure.notes)}", quote=True)
    bare = figure.__class__(figure.title, figure.panels)  # words and command stand beside it as text
    image = b64encode(bare.image("svg")).decode()
    picture = f'<img alt="{told}" src="data:image/svg+xml;base64,{image}">'
    lines = ["<figure>", f'<div class="scroll" tabindex="0">{picture}</div>']
    lines += [f"<figcaption>{'<br>'.join(words)}</figcaption>"] if words else []
    lines += ["</figure>"]
    if numbers:
        lines += [tables(figure)]
    lines += [f"<pre>{escape(figure.command)}</pre>"] if figure.command else []
    return "\n".join(lines)


def tables(figure: "Figure") -> str:
    parts = []
    for panel in figure.panels:
        rows = panel.table()
        heads, body = next(rows), list(rows)
        left = f"<p>{len(body) - ROWS:,} more rows: save the picture as .csv.</p>" if len(body) > ROWS else ""
        name = escape(panel.title or figure.title)
        shown = table(list(map(str, heads)), body[:ROWS])
        parts.append(f"<details><summary>Numbers: {name}</summary>{shown}{left}</details>")
    return "\n".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
