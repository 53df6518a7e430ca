"""Writes pages of docs from the code: every setting and name, every family with its costs, and who sees order.

`make docs` runs it; a test fails while a page is not what this gives.
"""

import inspect
import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from benchmarks.suites import SUITES
from elman.cells import CELLS
from elman.config import Config
from elman.corpus import DataConfig
from elman.corpus.synthetic import LANGUAGES
from elman.corpus.synthetic_tasks import TASKS as ABILITIES
from elman.inspection import permutation
from elman.inspection.catalog import COSTS, COUNTED, default, families
from elman.layers import LAYERS
from elman.models import MODELS, StackConfig
from elman.pipeline.names import FORMS
from elman.pipeline.recipe import Goal, Recipe
from elman.pipeline.tasks import TASKS
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS

DOCS = Path(__file__).parent

INTRODUCTION = """# Reference

Made from the code by `make docs`; change it there. A recipe is a YAML file of the settings below; all of them have
defaults. On the command line a setting is its place with dots: `--training.learning_rate 1e-3`.
`elman init` writes a recipe with every setting and its meaning, `elman list` shows the names. What sets families of
layers apart, and what they cost: [families](families.md)."""

LINKS = {
    "tokenizer": "A name or `type` with the settings of one of the [tokenizers](#tokenizers).",
    "model": "A name, or `type` with its settings. The name of a [cell or layer](#cells) stands for a stack of it: "
    "`model: lstm`, `model: {type: gru, reset: before, dropout: 0.1}`. The settings of a stack:",
    "goals": "A list; each entry has these settings:",
}


def reference() -> str:
    """The whole page."""
    return "\n\n".join([INTRODUCTION, *_recipe(), *_tasks(), *_names()]) + "\n"


FAMILIES = """# Families

Made from the code by `make docs`; `elman list --facts` shows the same, `elman list NAME` all about one. Their settings
are in the [reference](reference.md), and which of them [see order](positions.md) has a page of its own.

## What they are"""

FORMULAS = f"""## What they cost

{COUNTED}

`input` and `width` are those of the layer, `length` is the number of tokens, `inside` the same of all layers inside,
`inner` the wide part of a layer; all other words are settings, with zeros as the layer fills them in. Elementwise
functions are not counted, elementwise products are. A test counts while each layer runs and compares."""


def family_table() -> str:
    """What each family is about, and what it costs."""
    found = families()
    told = [[f"`{name}`", family.traits.idea, family.traits.limitation] for name, family in found.items()]
    costs = [[f"`{name}`", *(family.explain(cost) for cost in COSTS)] for name, family in found.items()]
    tables = [_rows(["name", "core idea", "known limitation"], told), FORMULAS, _rows(["name", *COSTS], costs)]
    return "\n\n".join([FAMILIES, *tables]) + "\n"


ORDER = """# Who sees order

Made from the code by `make docs`; `elman inspect permutation` shows it with numbers. All tokens but the last are
shuffled: does the last output change by more than a millionth of its size?"""


def who_sees_order() -> str:
    """The permutation test in words: numbers would differ from machine to machine."""
    verdicts: dict[str, list[str]] = {}
    for sight in permutation.permutation_table():
        verdict = f"{'changed' if sight.changed else 'unchanged'}: sees {sight.sees}"
        verdicts.setdefault(sight.name, []).append(verdict)
    reason = (permutation.__doc__ or "").partition("\n\n")[2].strip()
    table = _rows(["layer", "one", "two on each other"], [[name, *two] for name, two in verdicts.items()])
    return "\n\n".join([ORDER, table, reason]) + "\n"


SPEED = """# Speed

Made by `make docs` from the newest figures of each suite in `benchmarks/results`; `python -m benchmarks` measures the
same on this machine. Cases that the newest run of a suite left out follow from the run before. All rows of a table were
measured in one run, in rounds that took turns; "times faster" is the median of the rounds' ratios, with quartiles. What
was tried, and what did not help: [experiments](experiments.md)."""
WHOLE = {"epochs": "Whole epochs of the WikiText-2 LSTM recipe (`python -m benchmarks.epochs`)"}  # no suite: minutes
SHARE = "_share_of_copy"


def speed() -> str:
    pages = [SPEED]
    titles = {name: f"{suite.title[0].upper()}{suite.title[1:]}" for name, suite in SUITES.items()}
    for name, heading in (titles | WHOLE).items():
        for kind in ("cpu", "gpu"):
            found = sorted((DOCS.parent / "benchmarks" / "results").glob(f"*-{name}-{kind}.json"), reverse=True)
            seen: set[str] = set()
            for path in found:
                kept = json.loads(path.read_text())
                if seen and "cases" not in kept["results"]:
                    break
                tables = {title: table for title, table in _measured(kept["results"]) if title not in seen}
                if tables and not seen:
                    pages.append(f"## {heading}")
                if tables:
                    machine = ", ".join(f"{key} {value}" for key, value in kept["machine"].items() if value)
                    pages.append(f"{kept['date']}; {machine}.")
                pages += [f"**{title}**\n\n{table}" for title, table in tables.items()]
                seen |= set(tables)
    return "\n\n".join(pages) + "\n"


def _measured(figures: Any, title: str = "") -> Iterator[tuple[str, str]]:
    """Every table of ratios among figures, with the names on the way to it."""
    if not isinstance(figures, Mapping):
        return
    for case in figures.get("cases", ()):
        if rows := list(_clocked(case["times"])):
            yield (
                case["name"],
                _rows(["", "forward, µs a step", "times ours", "forward and backward", "times ours"], rows),
            )
        elif case["case"]["form"] == "alone":
            calls = [[one["kind"], f"{one['first_call_s']:.1f}"] for one in case["checks"] if "first_call_s" in one]
            yield case["name"], _rows(["", "first call, compiled, s"], calls)
    if trained := {name: row for name, row in figures.items() if "seconds_per_epoch" in _named(row)}:
        cells = [[name, f"{row['seconds_per_epoch']:.2f}", f"{row['perplexity']:.2f}"] for name, row in trained.items()]
        cells.append(["ratio", f"{figures['times_faster']:.2f}", f"{figures['perplexity_ratio']:.4f}"])
        yield f"{figures['epochs']} epochs", _rows(["", "seconds an epoch", "validation perplexity"], cells)
    if shares := {name: share for name, share in figures.items() if name.endswith(SHARE)}:
        cells = [[name.removesuffix(SHARE), f"{share:.2f}"] for name, share in shares.items()]
        yield f"{title}, beside a copy", _rows(["", "share of its speed"], cells)
    rows = {name: row for name, row in figures.items() if isinstance(row, Mapping) and "faster" in row}
    if rows:
        cells = [
            [name, f"{row['ms']:.3g}", f"{row['faster']:.2f} ({row['low']:.2f} to {row['high']:.2f})"]
            for name, row in rows.items()
        ]
        yield title, _rows(["", "ms", "times faster"], cells)
    others = {name: row for name, row in figures.items() if name not in rows}
    plain = {name: row for name, row in others.items() if isinstance(row, Mapping) and "ms" in row}
    if plain:
        cells = [[name, f"{row['ms']:.3g} ({row['low']:.3g} to {row['high']:.3g})"] for name, row in plain.items()]
        yield title, _rows(["", "ms"], cells)
    for name, inner in figures.items():
        if name not in rows and name not in plain:
            yield from _measured(inner, title if name in ("variants", "table") else f"{title}, {name}".lstrip(", "))


def _named(figures: Any) -> Mapping[str, Any]:
    return figures if isinstance(figures, Mapping) else {}


def _clocked(times: Mapping[str, Any]) -> Iterator[list[str]]:
    """Each variant of a case of the recurrence; ours in the first dtype is what the others are compared with."""
    ways = [times.get(way, {}) for way in ("forward", "training")]
    ours = next((name for name in ways[0] if name.startswith("ours") and "us" in ways[0][name]), None)
    for name in ways[0] if ours else ():
        if all("us" in way[name] for way in ways):
            pairs = [(way[name], way[name]["us"] / way[ours]["us"]) for way in ways]
            told = [
                [f"{one['us']:.2f} ({one['low']:.2f} to {one['high']:.2f})", f"{ratio:.1f}"] for one, ratio in pairs
            ]
            yield [name, *told[0], *told[1]]


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
    yield from _models(MODELS, "###")
    for name, told in FORMS.items():
        yield f"### {name} (model)\n\n{told}"
    yield "## Tokenizers"
    yield from _registry(TOKENIZERS, "tokenizer", {})
    yield "## Languages"
    yield "Synthetic ones, for `data.language`; their entropy is known exactly. All have these settings:"
    shared = _shared(LANGUAGES)
    yield _table(shared)
    yield from _registry(LANGUAGES, "language", shared)
    yield "## Abilities"
    yield "Synthetic tasks, for `elman tasks`: each asks for one ability. These are the settings of the full size."
    yield from _registry(ABILITIES, "ability", {})


def _tasks() -> Iterator[str]:
    """What the sections data, tokenizer and model hold for each task."""
    yield "## Tasks"
    yield "What `task` chooses. Section `data` has these settings besides those above, and `model` one of these kinds."
    for name in TASKS:
        task, settings = TASKS[name], TASKS[name].settings
        yield f"### {name} (task)\n\n{inspect.getdoc(task)}"
        own = {key: field for key, field in settings.Data.model_fields.items() if key not in DataConfig.model_fields}
        for key, field in own.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, Config):
                yield f"Section `data.{key}`: {field.description}"
                yield _table(inner.model_fields)
        plain = {key: field for key, field in own.items() if not _is_section(field)}
        if plain:
            yield _table(plain)
        if settings.models is not MODELS:
            yield from _models(settings.models, "####")


def _models(models: Registry[Any], level: str) -> Iterator[str]:
    for name in models:
        config = models[name].Config
        fields = config.model_fields
        stack = StackConfig.model_fields
        yield f"{level} {name} (model)\n\n{(inspect.getdoc(models[name]) or '').partition(chr(10))[0]}"
        own = {k: f for k, f in fields.items() if not _is_section(f) and _differs(f, stack.get(k)) and k != "type"}
        if own:
            kind = " A stack; settings of its own, or with another default:" if issubclass(config, StackConfig) else ""
            yield f"Its settings.{kind}"
            yield _table(own)
        for key in ("encoder", "decoder"):
            if key in fields:
                inner: Any = fields[key].annotation
                parts = {k: f for k, f in inner.model_fields.items() if _differs(f, stack.get(k))}
                yield f"Section `model.{key}`, a stack: {fields[key].description}"
                yield _table(parts)
        if getattr(models[name], "sites", None):
            yield _rows(["site", "meaning"], [[f"`{site}`", what] for site, what in models[name].sites.items()])


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Config)


def _differs(field: FieldInfo, other: FieldInfo | None) -> bool:
    return other is None or default(field) != default(other)


def _registry(
    registry: Registry[Any],
    kind: str,
    shared: Mapping[str, FieldInfo],
    leave_out: set[str] = frozenset(),
) -> Iterator[str]:
    for name, what in registry.describe().items():
        if name in leave_out:
            continue
        item: Any = registry[name]
        yield f"### {name} ({kind})\n\n{what}"
        own = {key: field for key, field in item.Config.model_fields.items() if key not in shared and key != "type"}
        if own:
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
        shown = default(field) if field.is_required() else f"`{default(field)}`"
        rows.append([f"`{name}`", _values(field.annotation), shown, " ".join((field.description or "").split())])
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


PAGES = {"reference.md": reference, "families.md": family_table, "positions.md": who_sees_order, "speed.md": speed}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote {DOCS / name}")
