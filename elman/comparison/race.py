"""Running a race: prepare the data, search learning rates, train every seed."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import torch

from elman.comparison.config import Race
from elman.comparison.plan import Job, RacePlan
from elman.comparison.scheduler import Event, WorkerPool
from elman.comparison.user_modules import read_modules
from elman.comparison.workers import Worker, local_workers
from elman.config import commented_yaml
from elman.errors import ConfigError, RunError
from elman.files import discard, make_folder, require_plain
from elman.layers.laws import agree
from elman.pipeline.devices import choose_device
from elman.pipeline.results import look_up
from elman.runs import FileManifest
from elman.untrusted import read_json, read_yaml

SETTINGS = "race.yaml"
SOURCES = "sources.json"
MAY_GROW = ("seeds",)  # a race can be resumed with more of these


class RaceRun:
    """A race in progress. Iterate over `events` to train everything; then `failures` has the errors, `tried` the
    learning rates of each entrant's search, and `rates` the one it was trained with."""

    def __init__(
        self,
        race: Race,
        folder: str | Path,
        *,
        workers: int = 0,
        resume: bool = False,
        modules: Sequence[str | Path] = (),
        places: Sequence[Worker] = (),
    ):
        """`modules` are Python files that register layers, cells or tasks; `places` are the workers, by default
        processes on this machine."""
        read_modules(modules)
        self.folder, self.modules = Path(folder), modules
        new = not self.folder.exists()
        require_plain(self.folder)
        self.race = _kept(race, self.folder, resume)
        try:
            self.plan = RacePlan(self.race, self.folder)
            _keep_sources(self.plan)
        except Exception:
            if new:
                discard(self.folder)  # nothing was trained: leave no folder in the way of the next attempt
            raise
        accelerators = torch.cuda.device_count() if choose_device(self.plan.base.device).type == "cuda" else 0
        self.pool = WorkerPool(places or local_workers(workers or accelerators or _cores(), accelerators, modules))
        self.failures: dict[str, dict[str, str]] = {}  # by entrant and job
        self.rates: dict[str, float] = {}
        self.tried: dict[str, list[float]] = {}
        self.speeds: dict[str, float] = {}
        self.jobs: dict[str, list[Job]] = {}

    @property
    def workers(self) -> int:
        """Number of trainings at a time."""
        return len(self.pool.workers)

    def events(self) -> Iterator[Event]:
        """Run all jobs; finished ones are skipped."""
        with closing(self.pool):
            yield from self._search_rates()
            for entrant in self.plan.entrants:
                if entrant.name in self.tried and entrant.name not in self.rates:
                    continue  # all its trials failed
                rate, speed = self.rates.get(entrant.name), self.speeds.get(entrant.name)
                self.jobs[entrant.name] = self.plan.runs(entrant, rate, speed)
            # Seed by seed, so that an interrupted race has results of every entrant.
            every = [job for jobs in self.jobs.values() for job in jobs]
            yield from self._run_jobs(sorted(every, key=lambda job: int(job.label.rpartition("-")[2])))

    def _search_rates(self) -> Iterator[Event]:
        trials, more = list[Job](), self.plan.trials()
        for _ in range(1 + self.race.extra_trials):
            yield from self._run_jobs(more)
            trials += more
            self._choose(trials)
            known = [one for one in self.plan.entrants if one.name in self.rates]
            beyond = [self.plan.extended_trial(one, self.tried[one.name], self.rates[one.name]) for one in known]
            more = [job for job in beyond if job is not None]

    def _run_jobs(self, jobs: list[Job]) -> Iterator[Event]:
        for job in jobs:
            self.plan.make_folder(job)
        for event in self.pool.run_jobs(jobs):
            if event.kind == "failed" and event.job:
                self.failures.setdefault(event.job.entrant, {})[event.job.label] = event.text
            yield event

    def _choose(self, trials: Sequence[Job]) -> None:
        """For each entrant the rate with the lowest validation loss among its finished trials."""
        found: dict[str, list[tuple[float, float]]] = {}
        self.tried = {job.entrant: [] for job in trials}
        for job in trials:
            name, rate, results = job.entrant, job.recipe.training.learning_rate, job.results
            assert rate is not None, "a trial is of one rate"
            self.tried[name].append(rate)
            loss = look_up(results, "valid.loss")
            if isinstance(loss, float):
                found.setdefault(name, []).append((loss, rate))
                speed = look_up(results, "tokens_per_second")
                self.speeds[name] = max(speed or 0.0, self.speeds.get(name, 0.0))
        self.rates = {name: min(pairs)[1] for name, pairs in found.items()}


def read_race(folder: str | Path) -> Race:
    """The settings in the folder of a race."""
    path = Path(folder) / SETTINGS
    if not path.exists():
        raise RunError(f"{folder}: holds no race, since it has no {SETTINGS}")
    FileManifest(folder).check()
    return Race.make(read_yaml(path))


def _kept(race: Race, folder: Path, resume: bool) -> Race:
    """Write the settings, or check them against the stored ones when the race is resumed."""
    path = folder / SETTINGS
    if path.exists():
        if not resume:
            raise RunError(f"{folder}: holds a race already; continue it with --resume, or use another --run")
        old, new = read_race(folder).plain(), race.plain()
        wrong = [key for key in new if new[key] != old[key] and key not in MAY_GROW]
        if wrong:
            shown = "; ".join(f"{key} was {old[key]!r}, now {new[key]!r}" for key in wrong[:2])
            raise ConfigError(f"a resumed race keeps its settings, but {shown}; leave them out, or use another --run")
    elif folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder}: not empty and not a race; use another --run")
    make_folder(folder)
    FileManifest(folder).write(SETTINGS, commented_yaml(race).encode())
    assert read_race(folder) == race, "settings round-trip"
    return race


def _keep_sources(plan: RacePlan) -> None:
    """Record the source text of users' layers; a resumed race must have the same."""
    path = plan.folder / SOURCES
    before = read_json(path) if path.exists() else {}
    now = {entrant.name: entrant.sources for entrant in plan.entrants if entrant.sources}
    for name in before.keys() & now.keys():
        agree(before[name], now[name], "race")
    if now:
        FileManifest(plan.folder).write(SOURCES, json.dumps({**before, **now}, indent=2).encode())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
