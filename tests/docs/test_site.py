"""The documentation site: every public name is documented, and the site builds without warnings and works offline."""

import importlib.util
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import elman

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """docs/build_site.py as a module."""
    pytest.importorskip("nbformat", reason="needs pip install '.[docs]'")
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def undocumented(name: str, found: object, fields: bool) -> Iterator[str]:
    """The object, and the public methods and properties of a class, that lack a docstring."""
    if callable(found) and not (found.__doc__ or "").strip():
        yield name
    for key, value in vars(found).items() if inspect.isclass(found) and fields else ():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not key.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(getattr(found, key)):
            yield f"{name}.{key}"


def test_every_public_name_is_on_a_page_of_the_api_and_has_a_docstring(site: ModuleType) -> None:
    """Seen to fail without `tap` on a page, and without the docstring of `Trace.show`."""
    listed = [name for _, names in site.API.values() for name in names]
    assert len(listed) == len(set(listed))
    assert {name for name in listed if "." not in name} == set(elman.__all__)
    missing = [part for name in listed for part in undocumented(name, site.find(name), name not in site.SETTINGS_ONLY)]
    assert not missing, f"without a docstring: {', '.join(missing)}"


def test_pages_of_the_api_name_where_things_are_defined(site: ModuleType) -> None:
    for page, text in site.api_pages():
        for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
            module, _, name = path.rpartition(".")
            assert hasattr(importlib.import_module(module), name), f"{page}: {path}"


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    """Catches a page that was added to docs alone."""
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} | {name for name, _ in site.api_pages()}
    pages |= {f"notebooks/{path.stem}.md" for path in docs.rglob("*.ipynb")} | {*site.FROM_ROOT.values()}
    shown = re.findall(r'= "([^"]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(shown) == sorted(pages)


def test_dead_links_and_foreign_files_are_found(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#nowhere"></a><a href="c.html"></a><a href="../"></a>'
        '<img src="d.png">'
        '<a href="https://example.org"></a><script src="https://example.org/x.js"></script>'
    )
    assert site.faults(tmp_path) == [
        "a.html: b.html#nowhere has no such anchor",
        "a.html: c.html does not exist",
        "a.html: ../ does not exist",
        "a.html: d.png does not exist",
        "a.html: https://example.org/x.js is fetched from elsewhere",
    ]


@pytest.mark.slow
def test_the_site_builds_without_warnings(site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict, with all links checked, in a copy. Catches a link to a page that is not there, and with the
    search shim of a CDN."""
    pytest.importorskip("zensical", reason="needs pip install '.[docs]'")
    (tmp_path / "zensical.toml").write_text((ROOT / "zensical.toml").read_text())
    (tmp_path / "elman").symlink_to(ROOT / "elman")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    site.build(tmp_path)
    names = set((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "3-gates.html", "trained-models.html", "race.html"} <= {path.name for path in names}
    script = (tmp_path / "site" / "search.js").read_text()
    index = json.loads(script[script.index("{") : script.rindex("}") + 1])
    found = {item["location"] for item in index["items"] if "forget gate" in item["text"].lower()}
    assert any(place.startswith("concepts/gates.html") for place in found)
