"""elman compare: trains several model families on the same data at a matched budget and ranks them."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from elman.cli import options, output
from elman.cli.options import option
from elman.cli.recipe_options import RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb
from elman.errors import ConfigError
from elman.processes import stop_signals

YAML = (".yaml", ".yml")
BUDGETS = ("tokens", "flops", "minutes")


@verb("compare", settings="recipe")
@takes_recipe_options(without=("model", "start_from", "size", "params", "seed"))
def compare(
    context: typer.Context,
    chosen: RecipeOptions,
    source: Path | None = typer.Argument(
        None,
        metavar="SOURCE",
        help="Text file to train on; or a recipe (its model is ignored) or a race, in YAML.",
        show_default="a synthetic language",
    ),
    models: str | None = option(
        help="Models to compare, separated by commas, with settings after a colon: ngram,gru,lstm:forget_bias=3.",
        default="by the task",
    ),
    spaces: list[str] | None = option(
        "--set",
        help="A setting and its values, each for an entrant of its own: model.dropout=0,0.3; or "
        "training.optimizer=sgd,adamw. Repeatable.",
        default="none",
    ),
    params: str | None = option(
        help="Parameters of each model: 250k, 5M; 0 leaves sizes as they are.", default="by vocabulary"
    ),
    tokens: str | None = option(help="Budget: training tokens (or texts) of each model.", default="400k"),
    flops: str | None = option(help="Budget instead: training FLOPs of each model, such as 2e12.", default="none"),
    minutes: float | None = option(help="Budget instead: training minutes of each model.", default="none"),
    seeds: int | None = option(help="Random seeds per model.", default="3"),
    trials: int | None = option(help="Learning rates tried per model; the best one is used.", default="3"),
    workers: int = typer.Option(0, help="Trainings in parallel.", show_default="one per core"),
    ray: str | None = option(help="Train on the Ray cluster at this address; `local` starts one here.", default="none"),
    run: Path | None = option(help="Folder for all runs and the report.", default="runs/race-<data>"),
    resume: bool = typer.Option(False, "--resume", help="Continue the comparison in --run; start it if it is new."),
    demo: bool = typer.Option(
        False, "--demo", help="A small comparison on a synthetic language: three minutes on two cores."
    ),
    json: bool = options.JSON,
) -> None:
    """Train several model families on the same data and rank them: a fair race.

    Each has the same size and budget, its own learning rate, and several seeds; the report (HTML) has confidence
    intervals. Recipe settings are options: --training.batch_size 16.

    Example: elman compare my.txt --models ngram,gru,attention --minutes 2
    """
    from elman.comparison import RaceRun, gather, read_results, write_report
    from elman.comparison.spaces import parse_spaces
    from elman.pipeline.recipe import task_of

    task, data = chosen["task"], chosen["data"]
    if task:  # a recipe may name it
        chosen.check_targets(task)
    named = chosen.settings(task)
    given: dict[str, Any] = {
        "entrants": models,
        "parameters": params,
        "tokens": tokens,
        "flops": flops,
        "minutes": minutes,
    }
    given |= {"seeds": seeds, "trials": trials, "settings": parse_spaces(spaces) if spaces else None}
    own = {key: value for key, value in given.items() if value is not None}
    text = source is not None and source.suffix not in YAML
    going_on = run if resume and not text else None
    begun = _initial_settings(None if text else source, demo, going_on, text or bool(data), context.obj)
    if text:
        named["data.train"] = [str(source), *(data or [])]
    if not begun:
        begun = {"recipe": {"training": task_of({"task": task}).race_training}}
    race = _make_race(begun, named, own, context.obj)
    folder = run or Path("runs") / ("race-demo" if demo else f"race-{_data_name(race.recipe)}")
    from elman.cli.race_table import RaceTable, show_results

    again = options.hint("compare", "--run", folder, "--resume", modules=chosen.modules)
    # Signals let the runs save a checkpoint, also where the parent process ignores interrupts.
    with stop_signals(signal.default_int_handler), output.interruptible(f"continue with: {again}"):
        places = workers_of(ray, workers, chosen.modules, race.recipe.get("device") != "cpu")
        if places is None:
            return
        running = RaceRun(race, folder, workers=workers, resume=resume, modules=chosen.modules, places=places)
        with RaceTable(running) as table:
            for event in running.events():
                table(event)
        found = gather(running)
        report = write_report(found, running, sys.argv[1:])
    if json:
        verdict = found.verdict.plain()
        output.show_json({"run": str(folder), "verdict": verdict, "entrants": read_results(folder)})
    else:
        show_results(found, running, report)
    if running.failures:
        raise typer.Exit(1)


def workers_of(ray: str | None, workers: int, modules: Sequence[Path], accelerated: bool) -> list[Any] | None:
    """Where trainings run; an empty list is this machine, None a torchrun process that has served the leader."""
    from elman.comparison import ray_workers, torchrun_workers

    if ray:
        return ray_workers.places(ray, workers, modules, accelerated)
    if torchrun_workers.processes() == 1:
        return []
    if workers:
        raise ConfigError("--workers: leave it out under torchrun, where every process trains")
    if torchrun_workers.leads():
        return torchrun_workers.places(modules)
    torchrun_workers.serve(modules)
    return None


def _initial_settings(
    source: Path | None, demo: bool, run: Path | None, data: bool, settings: list[str]
) -> dict[str, Any]:
    """Settings to start from: demo, file, or race to resume; none if data is given; else a synthetic language."""
    from elman.comparison import DEMO, EMBEDDED, read_race
    from elman.comparison.config import is_race, of_recipe
    from elman.config import parse_overrides
    from elman.untrusted import read_yaml

    if demo:
        return dict(DEMO)
    if source is not None:
        return read_yaml(source) if is_race(source) else of_recipe(read_yaml(source))
    if run is not None and (run / "race.yaml").exists():
        return read_race(run).plain()
    return {} if data or parse_overrides(settings).keys() & {"data.train", "data.language"} else {"recipe": EMBEDDED}


def _make_race(begun: dict[str, Any], named: dict[str, Any], own: dict[str, Any], settings: list[str]) -> Any:
    """Options override the settings of a file; a budget replaces the file's budget."""
    from elman.comparison import Race
    from elman.config import override, parse_overrides

    if named.get("data.train"):
        named = {"data.language": None, **named}
    recipe = override(begun.get("recipe") or {}, named | parse_overrides(settings))
    if own.keys() & set(BUDGETS):
        begun = {key: value for key, value in begun.items() if key not in BUDGETS}
    return Race.make({**begun, **own, "recipe": recipe})


def _data_name(recipe: dict[str, Any]) -> str:
    data = recipe.get("data") or {}
    if not isinstance(data, dict):
        raise ConfigError(f"data: a section with train, valid and so on, not {data!r}")
    places = data.get("train")
    first = places[0] if isinstance(places, list) and places else places
    return Path(str(first)).name.partition(".")[0] if first else (data.get("language") or {}).get("type", "agreement")
