"""elman init: write a complete, commented recipe."""

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import options
from elman.errors import RunError


def init(
    context: typer.Context,
    output: Annotated[Path | None, typer.Argument(help="Where to write.", show_default="stdout")] = None,
    task: options.Task = None,
    data: options.Data = None,
    valid: options.Valid = None,
    test: options.Test = None,
    target: options.Target = None,
    valid_target: options.ValidTarget = None,
    test_target: options.TestTarget = None,
    columns: options.Columns = None,
    model: options.Model = None,
    tokenizer: options.Tokenizer = None,
    start_from: options.Start = None,
    size: options.Size = None,
    params: options.Params = None,
    seed: options.Seed = None,
    module: options.Module = None,
    device: options.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a recipe with every setting, its default and its meaning; options and settings go into it."""
    from elman.pipeline.recipe import write_recipe

    recipe = options.build_recipe(
        context.obj, None, task=task, data=data, valid=valid, test=test, target=target, valid_target=valid_target,
        test_target=test_target, columns=columns, model=model, tokenizer=tokenizer, start_from=start_from,
        size=size, params=params, seed=seed, device=device,
    )  # fmt: skip
    text = write_recipe(recipe)
    if output is None:
        print(text, end="")
        return
    if output.exists() and not force:
        raise RunError(f"{output}: is there already; give another name, or --force to replace it")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{output}: cannot be written: {error.strerror}") from None
    print(f"Wrote {output}. Next: elman check {output}; elman train {output}")
