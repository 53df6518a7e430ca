"""elman check: validates a recipe and estimates what training it takes."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.recipe_options import RECIPE_FILE, RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb

CLASSES = 20  # shown, the most frequent ones


@verb("check", settings="recipe")
@takes_recipe_options()
def check(
    context: typer.Context,
    chosen: RecipeOptions,
    recipe: Path | None = RECIPE_FILE,
    json: bool = options.JSON,
) -> None:
    """Check a recipe without training it: read the data, build the model, time five steps.

    Prints sizes, unknown words, how often each label or tag occurs, memory and the expected training time. Nothing is
    written.

    Example: elman check recipe.yaml
    """
    from elman.pipeline.estimate import estimate

    output.status("reading the data, building the model, timing five training steps")
    found = estimate(chosen.build_recipe(recipe, context.obj))
    if json:
        return output.show_json(found)
    rows = [[key.replace("_", " "), value] for key, value in found.items() if isinstance(value, int | float)]
    output.table("Recipe", ["", "value"], rows)
    splits = found["splits"]
    names = [key.replace("_", " ") for key in next(iter(splits.values()))]
    output.table("Data", ["split", *names], [[split, *facts.values()] for split, facts in splits.items()])
    show_classes(found["classes"])
    for line in [*dict.fromkeys(f"{found['device']}; {layer}" for layer in found["layers"]), *found["notes"]]:
        print(line)


def show_classes(counts: dict[str, dict[str, int]]) -> None:
    """How often each label or tag occurs in each split."""
    if not counts:
        return

    def cell(split: str, name: str) -> str:
        count = counts[split].get(name, 0)
        return f"{count:,} ({count / max(1, sum(counts[split].values())):.1%})"

    first = next(iter(counts.values()))
    names = sorted(first, key=lambda name: -first[name])
    rows = [[name, *(cell(split, name) for split in counts)] for name in names[:CLASSES]]
    output.table("Labels or tags", ["", *counts], rows)
    if len(names) > CLASSES:
        print(f"and {len(names) - CLASSES} more")
