"""The page around a report: its style is inside, and it asks nobody for anything.

On a telephone each row of a table is a card, so that nothing is cut; roles keep it a table for those who listen.
"""

from collections.abc import Sequence
from html import escape

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ margin: 0 auto; max-width: 68rem; padding: 1rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
h1 {{ font-size: 1.35rem; line-height: 1.35; margin: 0.5rem 0; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 0.4rem; }}
h3 {{ font-size: 1rem; margin: 0.4rem 0; }}
.facts {{ color: #4a4a4a; }}
.pictures, .samples {{ display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }}
.samples {{ grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); }}
figure {{ margin: 0; max-width: 38rem; }}
figure svg {{ width: 100%; height: auto; display: block; }}
figcaption, caption {{ color: #4a4a4a; font-size: 0.875rem; text-align: left; }}
caption {{ padding-bottom: 0.4rem; }}
.wide {{ overflow-x: auto; }}
.wide:focus-visible {{ outline: 3px solid #0072b2; }}
table {{ border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.6rem; border-bottom: 1px solid #d0d0d0; text-align: right; vertical-align: top; }}
thead th {{ border-bottom: 2px solid #4a4a4a; vertical-align: bottom; }}
tbody th, thead th:first-child, .words td, .words thead th {{ text-align: left; }}
.texts tbody th {{ font-weight: normal; }}
pre {{ background: #f3f3f3; padding: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.4; }}
pre code {{ display: inline-block; padding-left: 1.5em; text-indent: -1.5em; }}
ul {{ padding-left: 1.2rem; }}
h1, li, td, th, p, figcaption {{ overflow-wrap: break-word; }}
@media screen and (max-width: 48rem) {{
  table, caption, tbody, tr, tbody th, td {{ display: block; }}
  thead {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }}
  tr {{ border-bottom: 2px solid #4a4a4a; padding: 0.5rem 0; }}
  tbody th, td {{ border: 0; padding: 0.1rem 0; }}
  td {{ display: flex; justify-content: space-between; gap: 1rem; text-align: right; }}
  td::before {{ content: attr(data-name); color: #4a4a4a; text-align: left; }}
  td:empty {{ display: none; }}
}}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 10pt; }}
  .pictures {{ grid-template-columns: 1fr 1fr; }}
  figure, tr {{ break-inside: avoid; }}
  h2, caption {{ break-after: avoid; }}
  .wide {{ overflow: visible; }}
  table {{ font-size: 7.5pt; }}
  th, td {{ padding: 0.15rem 0.3rem; }}
}}
</style>
</head>
<body>
<main>
<h1>{answer}</h1>
{more}
<p class="facts">{facts}</p>
{sections}
</main>
</body>
</html>
"""


def grid(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """A table whose rows begin with their name, or of kind `texts` with a text; `words` are no numbers in columns."""
    head = "".join(f'<th scope="col" role="columnheader">{escape(one)}</th>' for one in heads)
    body = ""
    for first, *cells in rows:
        body += f'<tr role="row"><th scope="row" role="rowheader">{escape(first)}</th>'
        for name, one in zip(heads[1:], cells, strict=True):
            body += f'<td role="cell" data-name="{escape(name)}">{escape(one)}</td>'
        body += "</tr>\n"
    head = f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
    return (
        f'<div class="wide {kind}" role="region" tabindex="0" aria-label="{escape(caption.partition(".")[0])}">'
        f'<table role="table"><caption>{escape(caption)}</caption>{head}\n<tbody role="rowgroup">{body}</tbody></table>'
        "</div>"
    )
