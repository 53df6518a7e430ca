"""Races and sweeps from Python: `found = compare({"entrants": ["gru", "lstm"], ...}, "runs/race")`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.comparison.config import Race
from elman.comparison.race import RaceRun
from elman.comparison.report import write_report
from elman.comparison.results import RaceResults, gather
from elman.comparison.scheduler import Event
from elman.comparison.sweep_report import write_sweep_report
from elman.comparison.sweep_results import SweepResults, gather_sweep
from elman.comparison.sweep_run import Sweep, SweepRun
from elman.comparison.workers import Worker
from elman.pipeline.recipe import Recipe, read_recipe


def compare(
    race: Race | Mapping[str, Any],
    folder: str | Path,
    *,
    workers: int = 0,
    resume: bool = False,
    modules: Sequence[str | Path] = (),
    places: Sequence[Worker] = (),
    listener: Callable[[Event], None] = lambda event: None,
) -> RaceResults:
    """Train all entrants at equal budget, rank them, and write results.jsonl, plots and report.html to the folder.

    Trainings run on this machine, `workers` at a time (0: one per core), unless `places` names other workers, such as
    those of a Ray cluster. `resume` continues a race that was interrupted; `modules` are Python files that register
    cells or layers; `listener` receives an event for every training that starts or ends.
    """
    race = race if isinstance(race, Race) else Race.make(race)
    running = RaceRun(race, folder, workers=workers, resume=resume, modules=modules, places=places)
    for event in running.events():
        listener(event)
    found = gather(running)
    write_report(found, running, ())
    return found


def sweep(
    source: str | Path | Mapping[str, Any] | Recipe | None,
    settings: Mapping[str, str | Sequence[Any]],
    *,
    run: str | Path,
    workers: int = 0,
    resume: bool = False,
    modules: Sequence[str | Path] = (),
    places: Sequence[Worker] = (),
    listener: Callable[[Event], None] = lambda event: None,
    **options: Any,
) -> SweepResults:
    """Train a recipe with many settings, find the best, and write results.jsonl, best.yaml and report.html to `run`.

    `settings` are the values to try: {"training.learning_rate": "log(1e-4,1e-2)", "model.dropout": [0.1, 0.3]}. The
    `options` are those of a sweep: trials, search, prune, measure, concurrent. The rest is as for `compare`.
    """
    recipe = read_recipe(source)
    running = SweepRun(
        Sweep.make({**options, "settings": dict(settings), "recipe": recipe}),
        run,
        workers=workers,
        resume=resume,
        modules=modules,
        places=places,
    )
    for event in running.events():
        listener(event)
    found = gather_sweep(running)
    write_sweep_report(found, running, ())
    return found
