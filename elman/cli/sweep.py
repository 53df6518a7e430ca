"""elman sweep: trains a recipe with many settings and finds the best."""

import signal
import sys
import time
from pathlib import Path
from typing import Any, Literal

import typer

from elman.cli import options, output
from elman.cli.compare import workers_of
from elman.cli.options import option
from elman.cli.recipe_options import RECIPE_FILE, RecipeOptions, takes_recipe_options
from elman.cli.verbs import verb
from elman.processes import stop_signals

SHOWN = 10  # trials in the table


@verb("sweep", settings="recipe")
@takes_recipe_options()
def sweep(
    context: typer.Context,
    chosen: RecipeOptions,
    recipe: Path | None = RECIPE_FILE,
    spaces: list[str] | None = option(
        "--set",
        help="A setting to vary and its values: 'training.learning_rate=log(1e-4,1e-2)', model.dropout=0.1,0.3,0.5, "
        "'model.hidden_size=int(32,256)'; also uniform(a,b), logint(a,b), range(a,b), choice(a,b). Repeatable.",
        default="those of the sweep in --run",
    ),
    trials: int | None = option(help="Number of trainings.", default="20"),
    search: Literal["auto", "random", "tpe", "grid"] | None = option(
        help="random, tpe (needs Optuna) or grid.",
        default="grid if --trials suffice for all combinations, else tpe where Optuna is installed, else random",
    ),
    prune: Literal["none", "median", "halving"] | None = option(
        help="How hopeless trials are stopped early, by validations at equal updates.", default="median"
    ),
    measure: str | None = option(
        help="Score on validation data to optimize: loss, accuracy, bits_per_byte.", default="by the task"
    ),
    workers: int = typer.Option(0, help="Trainings in parallel.", show_default="one per core"),
    ray: str | None = option(help="Train on the Ray cluster at this address; `local` starts one here.", default="none"),
    run: Path | None = option(help="Folder for all runs and the report.", default="runs/sweep-<data>-<model>"),
    resume: bool = typer.Option(False, "--resume", help="Continue the sweep in --run; start it if it is new."),
    json: bool = options.JSON,
) -> None:
    """Train a recipe with many settings and find the best: random search, TPE or a grid, without hopeless trials.

    The report (HTML) has the importance of each setting, parallel coordinates and all trials; best.yaml is the best
    recipe, for `elman train`.

    Example: elman sweep recipe.yaml --set 'training.learning_rate=log(1e-4,1e-2)' --set model.dropout=0.1,0.3
    """
    from elman.comparison.sweep_report import write_sweep_report
    from elman.comparison.sweep_results import gather_sweep
    from elman.comparison.sweep_run import SweepRun
    from elman.pipeline.recipe import read_recipe
    from elman.pipeline.session import default_run

    given = {"trials": trials, "search": search, "prune": prune, "measure": measure}
    own = {key: value for key, value in given.items() if value is not None}
    settings = _settings(chosen, recipe, spaces, own, run if resume else None, context.obj)
    base = read_recipe(settings.recipe)
    folder = run or Path("runs") / f"sweep-{default_run(base).name}"
    again = options.hint("sweep", "--run", folder, "--resume", modules=chosen.modules)
    with stop_signals(signal.default_int_handler), output.interruptible(f"continue with: {again}"):
        places = workers_of(ray, workers, chosen.modules, base.device != "cpu")
        if places is None:
            return
        running = SweepRun(settings, folder, workers=workers, resume=resume, modules=chosen.modules, places=places)
        _watch(running)
        found = gather_sweep(running)
        report = write_sweep_report(found, running, sys.argv[1:])
    if json:
        best = {**found.best, "recipe": str(folder / "best.yaml")}
        about = {"run": str(folder), "measure": found.measure.key, "search": running.sweep.search}
        output.show_json({**about, "best": best, "importance": found.importance, "trials": found.rows})
    else:
        _show(found, running, report)


def _settings(
    chosen: RecipeOptions,
    source: Path | None,
    spaces: list[str] | None,
    own: dict[str, Any],
    kept: Path | None,
    dotted: list[str],
) -> Any:
    """The sweep of the options; or that of a file or of a folder to resume, with options over it."""
    from elman.comparison.spaces import parse_spaces
    from elman.comparison.sweep_run import SETTINGS, Sweep, is_sweep
    from elman.errors import ConfigError
    from elman.untrusted import read_yaml

    if source is None and kept and (kept / SETTINGS).exists():
        source = kept / SETTINGS
    begun = read_yaml(source) if source and is_sweep(source) else {}
    recipe = chosen.build_recipe(begun.get("recipe") if begun else source, dotted)
    if spaces:
        own["settings"] = parse_spaces(spaces)
    if not {"settings"} & (begun.keys() | own.keys()):
        raise ConfigError("nothing to vary: give --set, such as --set 'training.learning_rate=log(1e-4,1e-2)'")
    return Sweep.make({**begun, **own, "recipe": recipe})


def _watch(running: Any) -> None:
    """A line for each trial that ends and, on a terminal, how far the sweep is."""
    from rich.console import Console

    from elman.comparison.spaces import shown
    from elman.comparison.verdict import number

    console = Console(file=sys.stderr, highlight=False)
    sweep, began = running.sweep, time.monotonic()
    spaces = ", ".join(f"{key}={shown(value)}" for key, value in sweep.settings.items())
    most = f"at most {sweep.trials} trials" if sweep.search == "grid" else f"{sweep.trials} trials"
    _print(console, f"{most} of {spaces}; search: {sweep.search}, {running.workers} in parallel")
    with console.status("") as status:
        for event in running.events():
            best = running.best
            leader = f"; best {number(running, running.score(best))} (trial {best.number})" if best else ""
            ended = len(running.results) + len(running.failures)
            seconds = time.monotonic() - began
            status.update(f"{ended} of {sweep.trials} trials, {len(event.running)} running, {seconds:,.0f} s{leader}")
            if event.job and event.kind in ("done", "failed"):
                _print(console, f"{event.job.name}: {_ended(running, int(event.job.label))}, {seconds:,.0f} s{leader}")


def _ended(running: Any, number_: int) -> str:
    """How a trial ended."""
    from elman.comparison.verdict import number

    if number_ in running.failures:
        lines = running.failures[number_].strip().splitlines() or [""]
        return f"failed: {lines[-1]}"
    trial, found = running.trials[number_ - 1], running.results[number_]
    pruned = f", pruned after {found.pruned_at:,} steps" if found.pruned_at else ""
    return f"{running.measure.key.replace('_', ' ')} {number(running, running.score(trial))}{pruned}"


def _print(console: Any, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _show(found: Any, running: Any, report: Path) -> None:
    """The best settings, what matters, and the best trials."""
    from elman.comparison.spaces import short_names, shown
    from elman.comparison.sweep_report import advice, headline

    output.say(headline(found, running))
    for text in advice(found, running):
        output.say(text)
    rows = [
        [row["trial"], *(shown(row["settings"][key]) for key in running.spaces), row["score"], row["outcome"]]
        for row in found.ranked[:SHOWN]
    ]
    heads = ["trial", *short_names(running.spaces).values(), found.measure.key, "outcome"]
    output.table(f"{found.measure.key.replace('_', ' ')} on validation data, the best trials", heads, rows)
    if running.failures:
        print(f"{len(running.failures)} trials failed; the report has their errors.")
    best = running.folder / "best.yaml"
    print(f"Best recipe: {best}")
    print(f"Train it: {options.hint('train', best, '--run', f'{running.folder}-best', modules=running.modules)}")
    print(f"Report: {report}")
