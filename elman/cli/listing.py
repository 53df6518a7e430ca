"""elman list: every name that a recipe can use, and all about one of them."""

from typing import Annotated

import typer

from elman.cli import options

Name = Annotated[str | None, typer.Argument(help="Show everything about this name.", show_default="all names")]
Facts = Annotated[bool, typer.Option("--facts", help="Core idea, limitation and cost of every family of layers.")]


def list_names(
    name: Name = None, facts: Facts = False, module: options.Module = None, json: options.Json = False
) -> None:
    """Cells, layers, models, tokenizers, languages, with one line each."""
    if name is not None:
        show_one(name, json)
    elif facts:
        show_facts(json)
    else:
        show_all(json)


def show_all(json: bool) -> None:
    from elman.pipeline.names import every_name

    names = every_name()
    if json:
        from elman.inspection.catalog import families

        options.show_json({**names, "families": {name: family.plain() for name, family in families().items()}})
        return
    for kind, entries in names.items():
        options.table(kind, ["name", "what it is"], [[name, text] for name, text in entries.items()])
    options.say("elman list NAME shows everything about one, elman list --facts what sets families apart.")


def show_facts(json: bool) -> None:
    from elman.inspection.catalog import COSTS, COUNTED, families

    found = families()
    if json:
        options.show_json({name: family.plain() for name, family in found.items()})
        return
    rows = [[name, family.traits.idea, family.traits.limitation] for name, family in found.items()]
    options.table("families", ["name", "core idea", "known limitation"], rows, lines=True)
    numbers = [[name, *(_whole(part) for part in family.cost)] for name, family in found.items()]
    options.table("cost", ["name", *COSTS, "parameters"], numbers)
    options.say(f"{COUNTED} elman list NAME shows the formulas.")


def show_one(name: str, json: bool) -> None:
    from elman.inspection.catalog import COSTS, COUNTED, entry
    from elman.pipeline.names import FORMS, task_models

    if name in FORMS:
        if json:
            options.show_json({"name": name, "kinds": ["model"], "what": FORMS[name]})
        else:
            options.say(f"{name} (model): {FORMS[name]}")
        return
    found = entry(name, task_models())
    family = found.family
    if json:
        settings = {key: {"default": value, "meaning": meaning} for key, (value, meaning) in found.settings.items()}
        told = family.plain() if family else None
        options.show_json({"name": name, **found._asdict(), "settings": settings, "family": told})
        return
    options.say(f"{name} ({' and '.join(found.kinds)}): {found.what}")
    if family:
        rows = [["core idea", family.traits.idea], ["known limitation", family.traits.limitation]]
        for cost in COSTS:
            rows.append([cost, family.explain(cost)])
        options.table("facts", ["", ""], rows)
        options.say(COUNTED)
    if found.settings:
        rows = [[key, value, meaning] for key, (value, meaning) in found.settings.items()]
        options.table("settings", ["setting", "default", "meaning"], rows)
    if found.sites:
        options.table("taps", ["site", "meaning"], [[site, meaning] for site, meaning in found.sites.items()])


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
