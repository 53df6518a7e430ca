"""A race in one call, for programs: `found = compare({"entrants": ["gru", "lstm"], ...}, "runs/race")`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.comparison.config import Race
from elman.comparison.race import Running
from elman.comparison.report import write_report
from elman.comparison.results import Found, gather
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
) -> Found:
    """Trains, measures and ranks; results.jsonl, plots and report.html are left in the folder.

    On this machine, or in other `places`: those of `on_ray.places("local")`, for one.
    """
    race = race if isinstance(race, Race) else Race.make(race)
    running = Running(race, folder, workers=workers, resume=resume, modules=modules, places=places)
    for event in running.events():
        listener(event)
    found = gather(running)
    write_report(found, running, ())
    return found
