"""elman compare: several families on the same data at a matched budget: which one to use, how sure, at what cost."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import options
from elman.errors import ConfigError

YAML = (".yaml", ".yml")
BUDGETS = ("tokens", "flops", "minutes")


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
    module: options.Module = None,
    device: options.Device = None,
    workers: Annotated[int, options.option(help="Trainings at a time.", default="one a core")] = 0,
    ray: Annotated[
        str | None, options.option(help="Run on the Ray cluster at this address; `local` starts one.", default="none")
    ] = None,
    run: Annotated[Path | None, options.option(help="Folder of the race.", default="runs/race-<data>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the race where it was, or begin it.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="A race of three minutes on two cores.")] = False,
    json: options.Json = False,
) -> None:
    """Train several families and compare them. Settings of the recipe are options: --training.batch_size 16."""
    from elman.comparison import Running, gather, read_results, write_report
    from elman.pipeline.recipe import columns_of, task_of

    named: dict[str, Any] = {"data.train": data, "data.valid": valid, "data.test": test, "task": task}
    named |= {"data.train_target": target, "data.valid_target": valid_target, "data.test_target": test_target}
    named |= {"tokenizer": tokenizer, "device": device}
    if task:  # a recipe may name it
        options.check_targets(task, target, valid_target, test_target)
    named |= columns_of(columns, task) if columns else {}
    own = {"entrants": models, "parameters": params, "tokens": tokens, "flops": flops, "minutes": minutes}
    own |= {"seeds": seeds, "trials": trials}
    text = source is not None and source.suffix not in YAML
    going_on = run if resume and not text else None
    begun = _begun(None if text else source, demo, going_on, text or bool(data), context.obj)
    if text:
        named["data.train"] = [str(source), *(data or [])]
    if not begun:
        begun = {"recipe": {"training": task_of({"task": task}).Race.training}}
    race = _race(begun, _given(named), _given(own), context.obj)
    folder = run or Path("runs") / ("race-demo" if demo else f"race-{_named(race.recipe)}")
    from elman.cli.racing import Table, show

    # Asked to end, it lets the runs save themselves; also where whoever started it had interrupts ignored.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        places = _places(race, ray, workers, module or ())
        if places is None:
            return
        running = Running(race, folder, workers=workers, resume=resume, modules=module or (), places=places)
        with Table(running) as table:
            for event in running.events():
                table(event)
        found = gather(running)
        report = write_report(found, running, sys.argv[1:])
    except KeyboardInterrupt:
        again = options.hint("compare", "--run", folder, "--resume", modules=module)
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if json:
        verdict = found.verdict.plain()
        options.show_json({"run": str(folder), "verdict": verdict, "entrants": read_results(folder)})
    else:
        show(found, running, report)
    if running.failures:
        raise typer.Exit(1)


def _places(race: Any, ray: str | None, workers: int, modules: Sequence[Path]) -> list[Any] | None:
    """Where trainings run: none given means this machine. Nothing at all in a process that only serves another's."""
    from elman.comparison import ray_workers, torchrun_workers

    if ray:
        return ray_workers.places(ray, workers, modules, accelerated=race.recipe.get("device") != "cpu")
    if torchrun_workers.processes() == 1:
        return []
    if workers:
        raise ConfigError("--workers: under torchrun each of its processes trains, so leave it out")
    if torchrun_workers.leads():
        return torchrun_workers.places(modules)
    torchrun_workers.serve(modules)
    return None


def _begun(source: Path | None, demo: bool, run: Path | None, data: bool, settings: list[str]) -> dict[str, Any]:
    """What the race is to begin with: the demo, a file, a race to go on with; nothing for data, else a language."""
    from elman.comparison import DEMO, EMBEDDED, read_race
    from elman.comparison.config import is_race, of_recipe
    from elman.config import parse_overrides, read_yaml

    if demo:
        return dict(DEMO)
    if source is not None:
        return read_yaml(source) if is_race(source) else of_recipe(read_yaml(source))
    if run is not None and (run / "race.yaml").exists():
        return read_race(run).plain()
    return {} if data or parse_overrides(settings).keys() & {"data.train", "data.language"} else {"recipe": EMBEDDED}


def _race(begun: dict[str, Any], named: dict[str, Any], own: dict[str, Any], settings: list[str]) -> Any:
    """Options above what stands in a file; a budget takes the place of another."""
    from elman.comparison import Race
    from elman.config import override, parse_overrides

    if named.get("data.train"):
        named = {"data.language": None, **named}
    recipe = override(begun.get("recipe") or {}, named | parse_overrides(settings))
    if own.keys() & set(BUDGETS):
        begun = {key: value for key, value in begun.items() if key not in BUDGETS}
    return Race.make({**begun, **own, "recipe": recipe})


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _named(recipe: dict[str, Any]) -> str:
    data = recipe.get("data") or {}
    if not isinstance(data, dict):
        raise ConfigError(f"data: a section with train, valid and so on, not {data!r}")
    places = data.get("train")
    first = places[0] if isinstance(places, list) and places else places
    return Path(str(first)).name.partition(".")[0] if first else (data.get("language") or {}).get("type", "agreement")
