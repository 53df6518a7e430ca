"""Running a race: prepare the data, search learning rates, train every seed."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from elman.comparison.config import Race
from elman.comparison.kept_settings import keep_settings, read_settings
from elman.comparison.plan import Job, RacePlan, alone_in
from elman.comparison.scheduler import Event, WorkerPool
from elman.comparison.user_modules import read_modules
from elman.comparison.workers import Worker, usual_workers
from elman.files import discard, require_plain
from elman.layers.laws import agree
from elman.pipeline.devices import choose_device
from elman.pipeline.results import look_up
from elman.runs import FileManifest
from elman.untrusted import read_json

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
        self.race = keep_settings(race, self.folder / SETTINGS, resume, MAY_GROW)
        with alone_in(self.folder):
            try:
                self.plan = RacePlan(self.race, self.folder)
                _keep_sources(self.plan)
            except Exception:
                if new:
                    discard(self.folder)  # nothing was trained: leave no folder in the way of the next attempt
                raise
        self.pool = WorkerPool(places or usual_workers(workers, choose_device(self.plan.base.device), modules))
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
        with closing(self.pool), alone_in(self.folder):
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
    return read_settings(Race, Path(folder) / SETTINGS)


def _keep_sources(plan: RacePlan) -> None:
    """Record the source text of users' layers; a resumed race must have the same."""
    path = plan.folder / SOURCES
    before = read_json(path) if path.exists() else {}
    now = {entrant.name: entrant.sources for entrant in plan.entrants if entrant.sources}
    for name in before.keys() & now.keys():
        agree(before[name], now[name], "race")
    if now:
        FileManifest(plan.folder).write(SOURCES, json.dumps({**before, **now}, indent=2).encode())
