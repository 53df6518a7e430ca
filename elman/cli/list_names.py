"""elman list: all registered names, or the documentation of one."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.verbs import verb


@verb("list")
def list_names(
    name: str | None = typer.Argument(
        None,
        help="Cell, layer, model, tokenizer, language or synthetic task to describe: gru.",
        show_default="all names",
    ),
    facts: bool = typer.Option(False, "--facts", help="Table of all layer families: core idea, limitation and cost."),
    module: list[Path] | None = options.MODULE,
    json: bool = options.JSON,
) -> None:
    """List the names that recipes can use, one line each; or describe one: settings, cost, taps."""
    if name is not None:
        show_one(name, json)
    elif facts:
        show_facts(json)
    else:
        show_all(json)


def show_all(json: bool) -> None:
    """Every name with its first docstring line, by kind."""
    from elman.pipeline.names import every_name

    names = every_name()
    if json:
        from elman.inspection.catalog import families

        return output.show_json({**names, "families": {name: family.plain() for name, family in families().items()}})
    for kind, entries in names.items():
        output.table(kind, ["name", "what it is"], [[name, text] for name, text in entries.items()])
    output.say("elman list NAME describes one of them; elman list --facts compares the layer families.")


def show_facts(json: bool) -> None:
    """Core idea, limitation and cost of every layer family."""
    from elman.inspection.catalog import COSTS, COUNTED, families

    found = families()
    if json:
        return output.show_json({name: family.plain() for name, family in found.items()})
    rows = [[name, family.traits.idea, family.traits.limitation] for name, family in found.items()]
    output.table("Layer families", ["name", "core idea", "known limitation"], rows, lines=True)
    numbers = [[name, *(part and round(part) for part in family.cost)] for name, family in found.items()]
    output.table("Cost", ["name", *COSTS, "parameters"], numbers)
    output.say(f"{COUNTED} elman list NAME shows the formulas.")


def show_one(name: str, json: bool) -> None:
    """Description, facts, settings and taps of one name."""
    from elman.inspection.catalog import COSTS, COUNTED, entry
    from elman.pipeline.names import FORMS, task_models

    if name in FORMS:
        if json:
            output.show_json({"name": name, "kinds": ["model"], "what": FORMS[name]})
        else:
            output.say(f"{name} (model): {FORMS[name]}")
        return
    found = entry(name, task_models())
    family = found.family
    if json:
        settings = {key: {"default": value, "meaning": meaning} for key, (value, meaning) in found.settings.items()}
        told = family.plain() if family else None
        return output.show_json({"name": name, **found._asdict(), "settings": settings, "family": told})
    output.say(f"{name} ({' and '.join(found.kinds)}): {found.what}")
    if family:
        rows = [["core idea", family.traits.idea], ["known limitation", family.traits.limitation]]
        rows += [[cost, family.explain(cost)] for cost in COSTS]
        output.table("Facts", ["", ""], rows)
        output.say(COUNTED)
    if found.settings:
        rows = [[key, value, meaning] for key, (value, meaning) in found.settings.items()]
        output.table("Settings", ["setting", "default", "meaning"], rows)
    if found.sites:
        rows = [[site, meaning] for site, meaning in found.sites.items()]
        output.table("Taps (values to record or edit)", ["site", "meaning"], rows)
