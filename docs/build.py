"""Writes docs/reference.md from the code: every setting with its default and meaning, every name with its settings.

`make docs` runs it; a test fails while the file is not what this gives.
"""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from elman.cells import CELLS
from elman.config import Config
from elman.corpus.synthetic import LANGUAGES
from elman.corpus.tasks import TASKS
from elman.layers import LAYERS
from elman.models import MODELS
from elman.pipeline.recipe import Goal, Recipe
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS

PAGE = Path(__file__).with_name("reference.md")

INTRODUCTION = """# Reference

Made from the code by `make docs`; change it there. A recipe is a YAML file of the settings below; all of them have
defaults. On the command line a setting is its place with dots: `--training.learning_rate 1e-3`.
`elman init` writes a recipe with every setting and its meaning, `elman list` shows the names."""

LINKS = {
    "tokenizer": "A name or `type` with the settings of one of the [tokenizers](#tokenizers).",
    "model": "A name, or `type` with its settings. The name of a [cell or layer](#cells) stands for a stack of it: "
    "`model: lstm`, `model: {type: gru, reset: before, dropout: 0.1}`. The settings of a stack:",
    "goals": "A list; each entry has these settings:",
}


def reference() -> str:
    """The whole page."""
    return "\n\n".join([INTRODUCTION, *_recipe(), *_names()]) + "\n"


def _recipe() -> Iterator[str]:
    yield "## Settings of a recipe"
    fields = Recipe.model_fields
    sections = {name: _section(name, field) for name, field in fields.items()}
    yield _table({name: field for name, field in fields.items() if sections[name] is None and name != "tokenizer"})
    for name, config in sections.items():
        if config is not None or name in LINKS:
            yield f"### {name}"
            yield fields[name].description or ""
            if name in LINKS:
                yield LINKS[name]
            if config is not None:
                yield _table(config.model_fields)


def _section(name: str, field: FieldInfo) -> type[Config] | None:
    """The settings inside a section; the tokenizers have theirs further down."""
    known: dict[str, type[Config] | None] = {"model": MODELS["stack"].Config, "goals": Goal, "tokenizer": None}
    if name in known:
        return known[name]
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Config) else None


def _names() -> Iterator[str]:
    yield "## Cells"
    yield "Every cell is also a layer of the same name. All cells have these settings:"
    shared = _shared(CELLS)
    yield _table(shared)
    yield "What can be recorded and edited inside a model is called a site: `layers.0.lstm.gate.forget`."
    yield from _registry(CELLS, "cell", shared)
    yield "## Layers"
    yield from _registry(LAYERS, "layer", {}, leave_out=set(CELLS))
    yield "## Models"
    yield from _registry(MODELS, "model", {}, settings=False)
    yield "## Tokenizers"
    yield from _registry(TOKENIZERS, "tokenizer", {})
    yield "## Languages"
    yield "Synthetic ones, for `data.language`; their entropy is known exactly. All have these settings:"
    shared = _shared(LANGUAGES)
    yield _table(shared)
    yield from _registry(LANGUAGES, "language", shared)
    yield "## Tasks"
    yield "Synthetic ones, for `elman tasks`: each asks for one ability. These are the settings of the full size."
    yield from _registry(TASKS, "task", {})


def _registry(
    registry: Registry[Any],
    kind: str,
    shared: Mapping[str, FieldInfo],
    leave_out: set[str] = frozenset(),
    settings: bool = True,
) -> Iterator[str]:
    for name, what in registry.describe().items():
        if name in leave_out:
            continue
        item: Any = registry[name]
        yield f"### {name} ({kind})\n\n{what}"
        own = {key: field for key, field in item.Config.model_fields.items() if key not in shared and key != "type"}
        if own and settings:
            yield _table(own)
        if getattr(item, "sites", None):
            yield _rows(["site", "meaning"], [[f"`{site}`", meaning] for site, meaning in item.sites.items()])


def _shared(registry: Registry[Any]) -> dict[str, FieldInfo]:
    """The settings that every class of a registry has."""
    classes: list[Any] = [registry[name].Config.model_fields for name in registry]
    return {key: field for key, field in classes[0].items() if all(key in fields for fields in classes)}


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = []
    for name, field in fields.items():
        if name == "type":
            continue
        default = "required" if field.is_required() else f"`{_plain(field.get_default(call_default_factory=True))}`"
        rows.append([f"`{name}`", _values(field.annotation), default, " ".join((field.description or "").split())])
    return _rows(["setting", "values", "default", "meaning"], rows)


def _rows(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _values(kind: Any) -> str:
    """A type in plain words: choices, or what sort of thing."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (Union, types.UnionType):
        return " or ".join(_values(part) for part in inside)
    if origin is Annotated:
        return _values(inside[0])
    if origin is list:
        return f"list of {_values(inside[0])}"
    if origin is tuple:
        return f"{len([part for part in inside if part is not ...])} numbers"
    words = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true, false",
        type(None): "null",
        dict: "settings",
    }
    return words.get(origin or kind, "settings")


def _plain(value: Any) -> str:
    """A default as a recipe writes it."""
    value = value.plain() if isinstance(value, Config) else list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    print(f"wrote {PAGE}")
