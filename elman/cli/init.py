"""elman init: writes a complete, commented recipe."""

from pathlib import Path

import typer

from elman.cli.recipe_options import RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb
from elman.errors import RunError


@verb("init", settings="recipe")
@takes_recipe_options()
def init(
    context: typer.Context,
    chosen: RecipeOptions,
    output: Path | None = typer.Argument(
        None, metavar="FILE", help="File to write: recipe.yaml.", show_default="stdout"
    ),
    force: bool = typer.Option(False, "--force", help="Overwrite an existing file."),
) -> None:
    """Write a recipe (YAML) with every setting, its value and its meaning.

    Options and dotted settings (--training.batch_size 16) change the values in it.

    Example: elman init recipe.yaml --data my.txt --model gru
    """
    from elman.pipeline.recipe import write_recipe

    text = write_recipe(chosen.build_recipe(None, context.obj))
    if output is None:
        print(text, end="")
        return
    if output.exists() and not force:
        raise RunError(f"{output}: exists already; give another name, or --force to overwrite it")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{output}: cannot be written: {error.strerror}") from None
    print(f"Wrote {output}. Next: elman check {output}; elman train {output}")
