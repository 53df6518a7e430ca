"""elman check: is the recipe sound, and what will it take?"""

import typer

from elman.cli import options


def check(
    context: typer.Context,
    recipe: options.Recipe = None,
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
    json: options.Json = False,
) -> None:
    """Read recipe and data, build the model, time a few steps; say sizes, unknown words, memory and time."""
    from elman.pipeline.estimate import estimate

    built = options.build_recipe(
        context.obj, recipe, task=task, data=data, valid=valid, test=test, target=target, valid_target=valid_target,
        test_target=test_target, columns=columns, model=model, tokenizer=tokenizer, start_from=start_from,
        size=size, params=params, seed=seed, device=device,
    )  # fmt: skip
    found = estimate(built)
    if json:
        options.show_json(found)
        return
    rows = [[key.replace("_", " "), value] for key, value in found.items() if isinstance(value, int | float)]
    options.table("This recipe", ["", "value"], rows)
    splits = found["splits"]
    figures = [key.replace("_", " ") for key in next(iter(splits.values()))]
    options.table("Its data", ["split", *figures], [[split, *facts.values()] for split, facts in splits.items()])
    for line in [*dict.fromkeys(f"{found['device']}; {layer}" for layer in found["layers"]), *found["notes"]]:
        print(line)
