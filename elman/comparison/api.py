"""A race from Python: `found = compare({"entrants": ["gru", "lstm"], ...}, "runs/race")`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.comparison.config import Race
from elman.comparison.race import RaceRun
from elman.comparison.report import write_report
from elman.comparison.results import RaceResults, gather
from elman.comparison.scheduler import Event
from elman.comparison.workers import Worker


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
