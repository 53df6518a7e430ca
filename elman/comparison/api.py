"""A race in one call: `found = compare({"entrants": ["gru", "lstm"], ...}, "runs/race")`."""

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
    """Trains, evaluates and ranks; writes results.jsonl, plots and report.html to the folder.

    On this machine, or by other workers in `places`, such as `ray_workers.places("local")`.
    """
    race = race if isinstance(race, Race) else Race.make(race)
    running = Running(race, folder, workers=workers, resume=resume, modules=modules, places=places)
    for event in running.events():
        listener(event)
    found = gather(running)
    write_report(found, running, ())
    return found
