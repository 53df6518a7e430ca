"""elman check: validates a recipe and estimates what training it takes."""

from pathlib import Path

import typer

from elman.cli import options, output
from elman.cli.recipe_options import RECIPE_FILE, RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb


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
    output.class_table(found["classes"])
    for line in [*dict.fromkeys(f"{found['device']}; {layer}" for layer in found["layers"]), *found["notes"]]:
        print(line)
