"""Writes pages of docs from code and results: settings and names, families and their costs, positions, speed,
reliability.

`make docs` runs it; a test fails while a page is not what this gives.
"""

import ast
import inspect
import json
import re
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from elman.cells import CELLS
from elman.config import Config
from elman.corpus import DataConfig
from elman.corpus.synthetic import LANGUAGES
from elman.corpus.synthetic_tasks import TASKS as ABILITIES
from elman.inspection.catalog import COSTS, COUNTED, default, families
from elman.inspection.labs import permutation
from elman.layers import LAYERS
from elman.limits import LIMIT_OF, VARIABLE, Limits
from elman.models import MODELS, StackConfig
from elman.pipeline.names import FORMS
from elman.pipeline.recipe import Goal, Recipe
from elman.pipeline.tasks import TASKS
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS

DOCS = Path(__file__).parent

INTRODUCTION = """# Reference

Generated from the code by `make docs`. A recipe is a YAML file of the settings below; all of them have defaults. On the
command line a setting is given by its dotted path: `--training.learning_rate 1e-3`. `elman init` writes a recipe with
every setting and its meaning, `elman list` shows all names. Properties and costs of layers: [families](families.md)."""

LINKS = {
    "tokenizer": "A name or `type` with the settings of one of the [tokenizers](#tokenizers).",
    "model": "A name, or `type` with its settings. The name of a [cell or layer](#cells) stands for a stack of it: "
    "`model: lstm`, `model: {type: gru, reset: before, dropout: 0.1}`. The settings of a stack:",
    "goals": "A list; each entry has these settings:",
}


def reference() -> str:
    """The whole page."""
    return "\n\n".join([INTRODUCTION, *_recipe(), *_tasks(), *_names(), *_limits()]) + "\n"


FAMILIES = """# Families

Generated from the code by `make docs`; `elman list --facts` shows the same, `elman list NAME` one family. Settings are
in the [reference](reference.md); which layers depend on word order is on [its own page](positions.md).

## Ideas and limitations"""

FORMULAS = f"""## Costs

{COUNTED}

`input` and `width` are those of the layer, `length` is the number of tokens, `inside` the cost of the layers inside,
`inner` the hidden width of a layer; all other words are settings, where zeros stand for the value that the layer
chooses. Elementwise products are counted, elementwise functions are not. A test counts operations while each layer runs
and compares."""


def family_table() -> str:
    """Idea, limitation and costs of each family."""
    all_families = families()
    ideas = [[f"`{name}`", family.traits.idea, family.traits.limitation] for name, family in all_families.items()]
    costs = [[f"`{name}`", *(family.explain(cost) for cost in COSTS)] for name, family in all_families.items()]
    tables = [_rows(["name", "core idea", "known limitation"], ideas), FORMULAS, _rows(["name", *COSTS], costs)]
    return "\n\n".join([FAMILIES, *tables]) + "\n"


ORDER = """# Who sees order

Generated from the code by `make docs`; `elman inspect permutation` shows the numbers. All tokens but the last are
permuted: does the last output change by more than a relative 1e-6?"""


def who_sees_order() -> str:
    """Results of the permutation test, without numbers, which differ between machines."""
    verdicts: dict[str, list[str]] = {}
    for sight in permutation.permutation_table():
        verdict = f"{'changed' if sight.changed else 'unchanged'}: sees {sight.sees}"
        verdicts.setdefault(sight.name, []).append(verdict)
    reason = (permutation.__doc__ or "").partition("\n\n")[2].strip()
    table = _rows(["layer", "one", "two stacked"], [[name, *two] for name, two in verdicts.items()])
    return "\n\n".join([ORDER, table, reason]) + "\n"


SPEED = """# Speed

Generated from `benchmarks/results` by `make docs`; the files there hold all cases, machines and versions.
Every row compares two programs measured in one run, in rounds that take turns, after their results were compared.
*Times as fast* is the median of the ratios of all rounds, with quartiles where the file has them. What was tried, and
what did not help: [kernel log](kernel-log.md)."""
RESULTS = DOCS.parent / "benchmarks" / "results"
STEPS = {256: 50, 512: 10, 1024: 3}  # steps in one measurement of the suite `stepping`, whose files hold their sum
TOKENS = 64  # tokens of one text there


def speed() -> str:
    """About ten rows: time or rate of elman, of a peer, and their ratio."""
    rows = [
        _step("LSTM, width 512, float32", "lstm step, width 512", "native fp32", "torch nn.LSTMCell", 512),
        _step("LSTM, width 512, int8", "lstm step, width 512", "native int8", "onnxruntime int8", 512),
        _step("GRU, width 256, float32", "gru step, width 256", "native fp32", "onnxruntime fp32", 256),
        _writing(),
        *(_served(weights) for weights in ("fp32", "int8")),
        _update(),
        _ngrams(),
        _beam(),
        _epoch(),
        *(_recurrence(*case) for case in (
            ("LSTM, 64 × 512 × 256, bf16", "lstm 64x512x256", "torch bf16"),
            ("GRU, 64 × 512 × 512, bf16", "gru 64x512x512", "torch GRU bf16"),
            ("Layer-norm LSTM, 64 × 512 × 512, bf16", "layernorm-lstm 64x512x512", "torch GRU bf16"),
        )),
        _scan(),
    ]  # fmt: skip
    table = _rows(["what", "elman", "peer", "times as fast", "machine"], rows)
    shapes = "Shapes are batch × steps × width. torch has no layer-norm LSTM; its GRU is the nearest peer."
    return "\n\n".join([SPEED, table, shapes]) + "\n"


def _newest(suite: str) -> tuple[dict[str, Any], str]:
    """Results of the newest run of a suite, and its machine."""
    kept = json.loads(max(RESULTS.glob(f"*-{suite}.json")).read_text())
    machine = kept["machine"]
    cores = f", {machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    processor = re.sub(r"\(R\)| Processor| @.*", "", machine["cpu"])
    return kept["results"], f"{machine['gpu'] or processor + cores}, {kept['date']}"


def _ratio(faster: float, low: float | None = None, high: float | None = None) -> str:
    return f"**{faster:.1f}**" + (f" ({low:.1f} to {high:.1f})" if low and high else "")


def _step(what: str, case: str, ours: str, peer: str, width: int) -> list[str]:
    """One step of one layer on one text; the files hold the time of several steps."""
    results, machine = _newest("stepping-cpu")
    times = {name: 1000 * row["ms"] / STEPS[width] for name, row in results[case]["variants"].items()}
    shown = [f"{times[name]:.0f} µs ({label})" for name, label in ((ours, "compiled step"), (peer, peer))]
    return [f"Step of one layer: {what}", *shown, _ratio(times[peer] / times[ours]), machine]


def _writing() -> list[str]:
    results, machine = _newest("stepping-cpu")
    case = results["language model, width 512"]
    rows, peer = case["variants"], case["against"]
    rate = {name: 1000 * TOKENS / row["ms"] for name, row in rows.items()}
    best = rows["native int8"]
    shown = [f"{rate['native int8']:,.0f} tokens/s (int8)", f"{rate[peer]:,.0f} tokens/s ({peer})"]
    what = "Sampling from a 2-layer LSTM, width 512, 10,000 words"
    return [what, *shown, _ratio(best["faster"], best["low"], best["high"]), machine]


def _served(weights: str) -> list[str]:
    """Over HTTP; the medians of the rounds."""
    results, machine = _newest("serving-cpu")
    names = f"elman {weights}", f"onnxruntime {weights}"
    ours, theirs = (results["streams"]["64"][name]["tokens_per_second"] for name in names)
    shown = [f"{ours:,.0f} tokens/s", f"{theirs:,.0f} tokens/s (onnxruntime, static batches, the same web framework)"]
    return [f"Serving 64 streams of that model, {weights}", *shown, _ratio(ours / theirs), machine]


def _update() -> list[str]:
    results, machine = _newest("training-cpu")
    case, ours, peer = results["width 256"], "elman, vendor recurrence", "usual torch loop"
    shown = [f"{case[name]['ms']:.0f} ms ({name})" for name in (ours, peer)]
    row = case[ours]
    what = "Training update of a 2-layer LSTM, width 256, 10,000 words"
    return [what, *shown, _ratio(row["faster"], row["low"], row["high"]), machine]


def _ngrams() -> list[str]:
    results, machine = _newest("ngrams-cpu")
    shown = [f"{results['build_s']:.1f} s", f"{results['lmplz_s']:.1f} s (KenLM lmplz, which also reads the text)"]
    what = "Modified Kneser-Ney 5-grams of WikiText-2 from token ids"
    return [what, *shown, _ratio(1 / results["build_over_lmplz"]), machine]


def _beam() -> list[str]:
    results, machine = _newest("beam-cpu")
    row, rate = results["table"]["elman, batches"], results["sentences_per_second"]
    shown = [f"{rate[name]:.0f} sentences/s ({name})" for name in ("elman, batches", "sentence by sentence")]
    return ["Beam search, beam 5, attention GRU", *shown, _ratio(row["faster"], row["low"], row["high"]), machine]


def _epoch() -> list[str]:
    results, machine = _newest("epochs-gpu")
    seconds = [f"{results[name]['seconds_per_epoch']:.2f} s ({name})" for name in ("elman", "plain torch")]
    return ["Epoch of the WikiText-2 LSTM recipe, fp16", *seconds, _ratio(results["times_faster"]), machine]


def _recurrence(what: str, name: str, peer: str) -> list[str]:
    """Forward and backward, per step."""
    results, machine = _newest("recurrence-gpu")
    [times] = [case["times"]["training"] for case in results["cases"] if case["name"] == name]
    ours = times["ours bf16"]["us"]
    shown = [f"{ours:.2f} µs per step", f"{times[peer]['us']:.1f} µs per step ({peer})"]
    return [f"Forward and backward: {what}", *shown, _ratio(times[peer]["us"] / ours), machine]


def _scan() -> list[str]:
    results, machine = _newest("scan-kernels-gpu")
    scans = results["linear_scans"]["peers"]
    peer = "torch associative_scan, compiled"
    shown = [f"{scans['kernel']['ms']:.3f} ms", f"{scans[peer]['ms']:.3f} ms ({peer})"]
    return ["Linear scan, 8 × 4096 × 1536, float32", *shown, _ratio(scans[peer]["ms"] / scans["kernel"]["ms"]), machine]


RELIABILITY = """# Reliability

Generated from `benchmarks/results` and `benchmarks/attack` by `make docs`. Each attack is a script with a count and a
time budget, and has a short form among the tests; a violation is anything but what its section below says. With no
violation in *n* cases, fewer than 3/*n* of them are violations, with 95 % confidence. What is promised, and what is
not: [security](../SECURITY.md)."""
ATTACKS = DOCS.parent / "benchmarks" / "attack"


def reliability() -> str:
    """Counts of every attack that has a record, over all its campaigns, and what it does by its docstring."""
    rows, sections = [], []
    for path in sorted(RESULTS.glob("attack-*.json")):
        record = json.loads(path.read_text())
        name, campaigns = record["attack"], record["campaigns"]
        counts: Counter[str] = sum((Counter(one["counts"]) for one in campaigns), Counter())
        violations = sum(len(one["violations"]) for one in campaigns)
        last = max(one["date"] for one in campaigns)
        title, _, told = (ast.get_docstring(ast.parse((ATTACKS / f"{name}.py").read_text())) or "").partition("\n\n")
        rows.append([f"[{name}](#{name})", title, f"{counts.total():,}", f"**{violations:,}**", last])
        shares = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        notes = [f"On {one['date']}: {one['facts']['note']}." for one in campaigns if "note" in one.get("facts", {})]
        on_gpu = ((sum(one["counts"].values()), one["machine"]["gpu"]) for one in campaigns if one["machine"]["gpu"])
        notes += [f"{count:,} of them on one {gpu}." for count, gpu in on_gpu]
        sections.append("\n\n".join([f"## {name}\n\n{title}\n\n{told}\n\nCases: {shares}.", *notes]))
    table = _rows(["attack", "what it does", "cases", "violations", "last run"], rows)
    return "\n\n".join([RELIABILITY, table, _tests_on_a_gpu(), *sections]) + "\n"


def _tests_on_a_gpu() -> str:
    """The newest record of `benchmarks.gpu_tests`."""
    record = json.loads(max(RESULTS.glob("*-tests-gpu.json")).read_text())
    found, where = record["results"], record["machine"]
    machine = f"one {where['gpu']} (torch {where['torch']}, triton {where['triton']})"
    skipped = "; ".join(f"{count}: {reason}" for reason, count in sorted(found["reasons"].items()))
    outcome = f"**{found['passed']} passed**, **{found['failed']} failed**, {found['skipped']} skipped ({skipped})"
    return f"""## Tests on a GPU

    python -m benchmarks.gpu_tests

All tests that use a GPU, in one process: training, evaluation, generation and races in any order, captured graphs, and
every kernel against its reference.

On {record["date"]}, in one process on {machine}: {outcome}."""


def _recipe() -> Iterator[str]:
    yield "## Settings of a recipe"
    fields = Recipe.described_fields()
    sections = {name: _section(name, field) for name, field in fields.items()}
    yield _table({name: field for name, field in fields.items() if sections[name] is None and name != "tokenizer"})
    for name, config in sections.items():
        if config is not None or name in LINKS:
            yield f"### {name}"
            yield fields[name].description or ""
            if name in LINKS:
                yield LINKS[name]
            if config is not None:
                yield _table(config.described_fields())


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


def _limits() -> Iterator[str]:
    """All limits; the default of one is measured, so it is not shown as a number."""
    yield "## Limits"
    yield (
        "What files, recipes and waiting may take. Errors name the limit that was exceeded; each can "
        f'be changed in the environment: `{VARIABLE}="layers=10000 rank_seconds=600" elman train ...`. A setting that '
        "is a whole number and has no limit of its own has that of `count`."
    )
    rows = []
    for name, field in Limits.described_fields().items():
        settings = ", ".join(f"`{one}`" for one, limit in sorted(LIMIT_OF.items()) if limit == name and one != name)
        shown = f"`{field.default}`" if field.default_factory is None else "this machine's"
        rows.append([f"`{name}`", shown, _meaning(field), settings])
    yield _rows(["limit", "default", "meaning", "settings"], rows)


def _tasks() -> Iterator[str]:
    """What the sections data, tokenizer and model hold for each task."""
    yield "## Tasks"
    yield "What `task` chooses. Section `data` has these settings besides those above, and `model` one of these kinds."
    for name in TASKS:
        task = TASKS[name]
        yield f"### {name} (task)\n\n{inspect.getdoc(task)}"
        own = {k: f for k, f in task.data_config.described_fields().items() if k not in DataConfig.model_fields}
        for key, field in own.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, Config):
                yield f"Section `data.{key}`: {field.description}"
                yield _table(inner.described_fields())
        plain = {key: field for key, field in own.items() if not _is_section(field)}
        if plain:
            yield _table(plain)
        if task.models is not MODELS:
            yield from _models(task.models, "####")


def _models(models: Registry[Any], level: str) -> Iterator[str]:
    for name in models:
        config = models[name].Config
        fields = config.described_fields()
        stack = StackConfig.described_fields()
        yield f"{level} {name} (model)\n\n{(inspect.getdoc(models[name]) or '').partition(chr(10))[0]}"
        own = {k: f for k, f in fields.items() if not _is_section(f) and _differs(f, stack.get(k)) and k != "type"}
        if own:
            kind = " A stack; settings of its own, or with another default:" if issubclass(config, StackConfig) else ""
            yield f"Its settings.{kind}"
            yield _table(own)
        for key in ("encoder", "decoder"):
            if key in fields:
                inner: Any = fields[key].annotation
                parts = {k: f for k, f in inner.described_fields().items() if _differs(f, stack.get(k))}
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
        own = {k: f for k, f in item.Config.described_fields().items() if k not in shared and k != "type"}
        if own:
            yield _table(own)
        if getattr(item, "sites", None):
            yield _rows(["site", "meaning"], [[f"`{site}`", meaning] for site, meaning in item.sites.items()])


def _shared(registry: Registry[Any]) -> dict[str, FieldInfo]:
    """The settings that every class of a registry has."""
    classes: list[Any] = [registry[name].Config.described_fields() for name in registry]
    return {key: field for key, field in classes[0].items() if all(key in fields for fields in classes)}


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = []
    for name, field in fields.items():
        if name == "type":
            continue
        shown = default(field) if field.is_required() else f"`{default(field)}`"
        rows.append([f"`{name}`", _values(field.annotation), shown, _meaning(field)])
    return _rows(["setting", "values", "default", "meaning"], rows)


def _meaning(field: FieldInfo) -> str:
    """The help text; brackets that Markdown would read as a reference are escaped."""
    return " ".join((field.description or "").split()).replace("][", "]\\[")


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


PAGES = {
    "reference.md": reference,
    "families.md": family_table,
    "positions.md": who_sees_order,
    "speed.md": speed,
    "reliability.md": reliability,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote {DOCS / name}")
