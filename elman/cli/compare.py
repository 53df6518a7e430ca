"""elman compare: several families on the same data at a matched budget: which one to use, how sure, at what cost."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import ConfigError


def compare(
    context: typer.Context,
    source: Annotated[
        Path | None,
        typer.Argument(help="A text, a recipe (of which the model is left out) or a race.", show_default="a language"),
    ] = None,
    task: options.Task = None,
    data: options.Data = None,
    valid: options.Valid = None,
    test: options.Test = None,
    target: options.Target = None,
    valid_target: options.ValidTarget = None,
    test_target: options.TestTarget = None,
    columns: options.Columns = None,
    tokenizer: options.Tokenizer = None,
    models: Annotated[
        str | None, options.option(help="Who runs: families, with commas between.", default="those usual for the task")
    ] = None,
    params: Annotated[
        str | None, options.option(help="Equal size: 250k, 5M; 0 for any.", default="by the vocabulary")
    ] = None,
    tokens: Annotated[str | None, options.option(help="Equal training tokens (or texts).", default="400k")] = None,
    flops: Annotated[str | None, options.option(help="Equal training operations, like 2e12.", default="none")] = None,
    minutes: Annotated[float | None, options.option(help="Equal training minutes.", default="none")] = None,
    seeds: Annotated[int | None, options.option(help="Trainings of each.", default="3")] = None,
    trials: Annotated[int | None, options.option(help="Learning rates that each tries.", default="3")] = None,
    module: Annotated[
        list[Path] | None, options.option(help="Python file that registers your own cell. Repeatable.", default="none")
    ] = None,
    device: options.Device = None,
    workers: Annotated[int, options.option(help="Trainings at a time.", default="one a core")] = 0,
    run: Annotated[Path | None, options.option(help="Folder of the race.", default="runs/race-<data>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the race where it was, or begin it.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="A race of three minutes on two cores.")] = False,
    json: options.Json = False,
) -> None:
    """Train several families and compare them. Settings of the recipe are options: --training.batch_size 16."""
    from elman.comparison import DEMO, EMBEDDED, Race, Running, gather, read_race
    from elman.comparison.config import is_race, of_recipe
    from elman.config import override, parse_overrides, read_yaml

    named: dict[str, Any] = {"data.train": data, "data.valid": valid, "data.test": test, "task": task}
    named |= {"data.train_target": target, "data.valid_target": valid_target, "data.test_target": test_target}
    named |= {"tokenizer": tokenizer, "device": device}
    own = {"entrants": models, "parameters": params, "tokens": tokens, "flops": flops, "minutes": minutes}
    own |= {"seeds": seeds, "trials": trials}
    begun: dict[str, Any] = {}
    if demo:
        begun = dict(DEMO)
    elif source is not None and source.suffix in (".yaml", ".yml"):
        begun = read_yaml(source) if is_race(source) else of_recipe(read_yaml(source))
    elif source is not None:
        named["data.train"] = [str(source), *(data or [])]
    elif resume and run is not None and (run / "race.yaml").exists():
        begun = read_race(run).plain()
    elif not data and not parse_overrides(context.obj).keys() & {"data.train", "data.language"}:
        begun = {"recipe": EMBEDDED}
    overrides = {key: value for key, value in named.items() if value is not None}
    if named["data.train"]:
        overrides = {"data.language": None, **overrides}
    overrides |= options.columns_of(columns, task) if columns else {}
    recipe = override(begun.get("recipe") or {}, overrides | parse_overrides(context.obj))
    race = Race.make({**begun, **{key: value for key, value in own.items() if value is not None}, "recipe": recipe})
    folder = run or Path("runs") / ("race-demo" if demo else f"race-{_named(recipe)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # asked to end, it lets the runs save themselves
    from elman.cli.racing import Table, show

    running = Running(race, folder, workers=workers, resume=resume, modules=module or ())
    try:
        with Table(running) as table:
            for event in running.events():
                table(event)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: elman compare --run {folder} --resume", file=sys.stderr)
        raise typer.Exit(130) from None
    found = gather(running)
    from elman.comparison.report import write_report

    report = write_report(found, running, sys.argv[1:])
    if json:
        options.show_json({"run": str(folder), "verdict": found.verdict.plain(), "entrants": found.rows})
    else:
        show(found, running, report)
    if running.failures:
        raise typer.Exit(1)


def _named(recipe: dict[str, Any]) -> str:
    data = recipe.get("data") or {}
    if not isinstance(data, dict):
        raise ConfigError(f"data: a section with train, valid and so on, not {data!r}")
    places = data.get("train")
    first = places[0] if isinstance(places, list) and places else places
    return Path(str(first)).name.partition(".")[0] if first else (data.get("language") or {}).get("type", "agreement")
