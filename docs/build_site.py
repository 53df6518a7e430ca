"""Builds the documentation site: `make docs`. Search and all pages work offline, from files or any static server.

    docs/*.md, *.ipynb, CHANGELOG.md, docstrings  ->  build/docs (Markdown only)  ->  zensical  ->  site/

The pages in build/docs are copies: notebooks become Markdown with their stored outputs, each page of the Python API is
a list of names for mkdocstrings, and links are made relative to the site. The build fails on any warning or dead link.
"""

import inspect
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FROM_ROOT = {name: f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")}
SOURCES = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:elman|benchmarks|tests)/[^)]*\)")  # code is not on the site

# Pages of the Python API. Names without a dot are exports of `elman`; others are what those return.
API: dict[str, tuple[str, list[str]]] = {
    "train": (
        "`elman.train` trains a recipe and returns the model; `elman.iterate` yields a `Report` for every event. A "
        "recipe is a file, a dictionary or a `Recipe`; all settings are in the [reference](../reference.md).",
        ["train", "iterate", "Recipe", "read_recipe", "write_recipe", "Report", "Trainer", "TrainingConfig"],
    ),
    "trained-models": (
        "`elman.load` opens a run folder. What it returns predicts, generates, scores and can be inspected; "
        "`elman.serve` answers over HTTP.",
        ["load", "serve", "TrainedModel", "elman.evaluation.Score", "elman.generation.Generated"],
    ),
    "compare": (
        "`elman.compare` trains several model families at equal budget and ranks them.",
        [
            "compare",
            "elman.comparison.Race",
            "elman.comparison.results.RaceResults",
            "elman.comparison.ranking.Verdict",
        ],
    ),
    "sweep": (
        "`elman.sweep` trains one recipe with many settings and finds the best.",
        ["sweep", "elman.comparison.sweep_run.Sweep", "elman.comparison.sweep_results.SweepResults"],
    ),
    "look-inside": (
        "`model.attention(text)`, `.gradients`, `.gates`, `.predictions` and `.units` of a [trained model]"
        "(trained-models.md) return what is below: a figure with its numbers. `elman.inspect` has the same of layers "
        "before they are trained. Values inside a model have names, called sites; they can be recorded or edited while "
        "it runs.",
        [
            "inspect",
            "elman.inspection.result.Inspection",
            "elman.inspection.trace.Trace",
            "elman.inspection.summary.Summary",
            "record",
            "edit",
            "tap",
            "elman.ops.taps.Recording",
            "elman.figures.figure.Figure",
        ],
    ),
    "layers-and-models": (
        "Building blocks. All of them are plain `torch.nn.Module`s.",
        [
            "SequenceLayer",
            "LAYERS",
            "Cell",
            "CELLS",
            "Stack",
            "StackConfig",
            "LanguageModel",
            "elman.registry.Registry",
        ],
    ),
    "errors": ("Every error that elman raises on purpose derives from `ElmanError`.", ["ElmanError"]),
}
SETTINGS_ONLY = {"Recipe", "TrainingConfig", "StackConfig"}  # their fields are in the reference


def find(name: str) -> Any:
    """The object behind a name of the API."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module or "elman"), attribute)


def path_of(name: str) -> str:
    """Where an object is defined, which is where mkdocstrings reads its docstring."""
    found = find(name)
    if inspect.ismodule(found):
        return found.__name__
    if inspect.isclass(found) or inspect.isfunction(found):
        return f"{found.__module__}.{found.__qualname__}"
    for module in [module for key, module in sorted(sys.modules.items()) if key.startswith("elman.")]:
        if vars(module).get(name) is found and re.search(rf"^{name}\b.* = ", inspect.getsource(module), re.MULTILINE):
            return f"{module.__name__}.{name}"  # an instance, such as a registry
    raise LookupError(name)


def api_pages() -> Iterator[tuple[str, str]]:
    for page, (introduction, names) in API.items():
        parts = [f"# {page.replace('-', ' ').capitalize()}", introduction]
        for name in names:
            shown = name if "." in name else f"elman.{name}"
            options = f'      heading: "{shown.rpartition(".")[2] if "." in name else shown}"\n'
            options += "      members: false\n" if name in SETTINGS_ONLY else ""
            parts.append(f"::: {path_of(name)}\n    options:\n{options}")
        yield f"api/{page}.md", "\n\n".join(parts) + "\n"


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: prose, code, and the outputs that it was stored with."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += filter(None, map(_output, cell.outputs))
    return "\n\n".join(parts) + f"\n\n[Download this notebook]({path.name})\n"


def _output(output: Any) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return f'<figure class="notebook">{data["text/html"]}</figure>'
    if "image/svg+xml" in data:
        image = b64encode(data["image/svg+xml"].encode()).decode()
        picture = f'<img alt="Output of the cell above" src="data:image/svg+xml;base64,{image}">'
        return f'<figure class="notebook">{picture}</figure>'
    text = output.get("text") or data.get("text/plain", "")
    return f'<div class="output" markdown>\n\n```text\n{text.rstrip()}\n```\n\n</div>' if text.strip() else ""


def stage(folder: Path) -> None:
    """Fill build/docs."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, page in FROM_ROOT.items():
        shutil.copyfile(ROOT / f"{name}.md", folder / page)
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        (folder / "notebooks" / f"{path.stem}.md").write_text(notebook_page(path), encoding="utf-8")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    (folder / "api").mkdir(exist_ok=True)
    for name, page in api_pages():
        (folder / name).write_text(page, encoding="utf-8")
    for path in folder.rglob("*.md"):
        path.write_text(relinked(path.read_text(encoding="utf-8"), path.relative_to(folder)), encoding="utf-8")


def relinked(text: str, path: Path) -> str:
    """Links as they are on the site, where README.md is the overview and files of the root lie beside the pages."""
    depth = "../" * (len(path.parts) - 1)
    if path.name in FROM_ROOT.values():
        text = re.sub(r"\]\(docs/", "](", text)
    for name, page in FROM_ROOT.items():
        text = re.sub(rf"\]\((\.\./)*{name}\.md", f"]({depth}{page}", text)
    text = re.sub(r"\]\((\.\./)*README\.md", f"]({depth}index.md", text)
    text = SOURCES.sub(r"\1", text)
    return re.sub(r"\]\((\.\./)*recipes/", f"]({depth}recipes/", text)


class Links(HTMLParser):
    """What a page refers to (`uses` are fetched when it is shown), and the anchors that it offers."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.uses: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        source = given.get("src") or (given.get("href") if tag == "link" and given.get("rel") != "canonical" else None)
        if source:
            self.uses.append(source)


def faults(site: Path) -> list[str]:
    """Dead links, dead anchors, and files that would be fetched from elsewhere."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Links()
        pages[path].feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # is served for any address, so its links are absolute
            continue
        for link in (*page.links, *page.uses):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                found += [f"{path.name}: {link} is fetched from elsewhere"] if link in page.uses else []
                continue
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or not target.is_relative_to(site.resolve()):
                found.append(f"{path.relative_to(site)}: {link} does not exist")
            elif (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"__top"}
            ):
                found.append(f"{path.relative_to(site)}: {link} has no such anchor")
    return found


def build(root: Path = ROOT) -> None:
    """Build `root`/site with the configuration `root`/zensical.toml."""
    stage(root / "build" / "docs")
    shutil.rmtree(root / "site", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=root, env={**os.environ, "NO_COLOR": "1"}, check=False).returncode:
        raise SystemExit("the site was not built: see the warnings above")
    if wrong := faults(root / "site"):
        raise SystemExit("\n".join(wrong))
    print(f"wrote {root / 'site' / 'index.html'}")


if __name__ == "__main__":
    build()
