"""The page around a report: its style is inside, and it asks nobody for anything."""

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
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }}
figure {{ margin: 0; max-width: 34rem; }}
figure svg {{ width: 100%; height: auto; display: block; }}
figcaption, caption {{ color: #4a4a4a; font-size: 0.875rem; text-align: left; }}
caption {{ padding-bottom: 0.4rem; }}
.wide {{ overflow-x: auto; }}
.wide:focus-visible, pre:focus-visible {{ outline: 3px solid #0072b2; }}
table {{ border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.6rem; border-bottom: 1px solid #d0d0d0; text-align: right; vertical-align: top; }}
thead th {{ border-bottom: 2px solid #4a4a4a; vertical-align: bottom; }}
tbody th, thead th:first-child, td:last-child {{ text-align: left; }}
pre {{ background: #f3f3f3; padding: 0.8rem; overflow-x: auto; }}
ul {{ padding-left: 1.2rem; }}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 10pt; }}
  section, figure, tr {{ break-inside: avoid; }}
  .wide, pre {{ overflow: visible; }}
  table {{ font-size: 7.5pt; }}
  th, td {{ padding: 0.15rem 0.3rem; }}
  pre {{ white-space: pre-wrap; }}
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
