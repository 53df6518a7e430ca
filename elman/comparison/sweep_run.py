"""Sweeps: many trainings of one recipe with other settings, to find the best.

Trial n is proposed from the outcomes of the trials up to n - `concurrent`, however many more are known by then. So the
same seed gives the same trials on any number of workers, and after any interruption.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from elman.comparison.kept_settings import keep_settings, read_settings
from elman.comparison.plan import PREPARED, Job, alone_in, make_run_folder
from elman.comparison.pruning import Course, Milestones, milestones
from elman.comparison.scheduler import Event, WorkerPool
from elman.comparison.search import Outcome, Search, combinations, has_optuna
from elman.comparison.spaces import read_spaces
from elman.comparison.user_modules import read_modules
from elman.comparison.workers import Worker, usual_workers
from elman.config import Config
from elman.errors import ConfigError, RunError
from elman.files import discard, make_folder, require_plain
from elman.pipeline.devices import choose_device
from elman.pipeline.prepare import prepare
from elman.pipeline.recipe import Recipe, read_recipe
from elman.pipeline.tasks.examples import LOWER_IS_BETTER
from elman.pipeline.tasks.race import Measure
from elman.runs import FileManifest, read_metrics
from elman.training.early_stopping import EarlyStopping
from elman.untrusted import read_json, read_yaml

SETTINGS = "sweep.yaml"
TRIALS = "trials.json"
CONCURRENT = 8
PREPARES = ("data", "tokenizer", "task", "start_from")  # sections that the prepared data depends on
LOWER = (*LOWER_IS_BETTER, "loss", "perplexity", "bits_per_byte")


class Sweep(Config):
    """Settings of a sweep."""

    settings: dict[str, Any] = Field(min_length=1)
    """Search space of each setting that is varied: log(1e-4,1e-2), uniform(0,0.5), int(16,128), logint(16,1024),
    range(1,4), choice(a,b), or a list of values."""
    trials: int = Field(20, ge=1)
    """Number of trainings."""
    search: Literal["auto", "random", "tpe", "grid"] = "auto"
    """How settings are chosen: random; tpe, which learns from the trials before and needs Optuna; grid, all
    combinations. auto: grid where there are no more combinations than trials, else tpe where Optuna is installed."""
    prune: Literal["none", "median", "halving"] = "median"
    """Early end of hopeless trials: median stops those whose best validation is above the median of others at equal
    updates; halving those that are not among the best third after a ninth and a third of the training."""
    measure: str = ""
    """Score on validation data to optimize: loss, accuracy, bits_per_byte; by default that of evaluation.choose_by or,
    if this is the loss, the main score of the task."""
    concurrent: int = Field(0, ge=0)
    """Trials at a time at most: a proposal uses the outcomes of all but the last so many before it. 0: 8, or the number
    of workers where there are more."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """The recipe; its settings are those of all trials that are not varied."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _plain(cls, recipe: Any) -> Any:
        return recipe.plain() if isinstance(recipe, Recipe) else recipe


class Trial(NamedTuple):
    """One training of a sweep."""

    number: int  # from 1
    settings: dict[str, Any]
    job: Job


class Result(NamedTuple):
    """How a trial ended; `score` is lower for better ones."""

    score: float
    curve: list[tuple[int, float]]  # steps, and the score of each validation
    pruned_at: int = 0  # the step


class SweepRun:
    """A sweep in progress. Iterate over `events` to train everything; then `results` has those of the trials that
    ended, and `failures` the errors of the others, by number."""

    def __init__(
        self,
        sweep: Sweep,
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
        self.spaces = read_spaces(sweep.settings)
        self.base = read_recipe(sweep.recipe)
        self.pool = WorkerPool(places or usual_workers(workers, choose_device(self.base.device), modules))
        self.plain = self.base.plain()
        self.sweep = keep_settings(self._chosen(sweep), self.folder / SETTINGS, resume, ("trials",))
        self.trials: list[Trial] = []
        self.results: dict[int, Result] = {}
        self.failures: dict[int, str] = {}
        with alone_in(self.folder):
            try:
                self.search = Search(self.sweep.search, self.spaces, self.base.seed, self._problem)
                self._prepare()
            except Exception:
                if new:
                    discard(self.folder)  # nothing was trained: leave no folder in the way of the next attempt
                raise

    @property
    def workers(self) -> int:
        """Number of trainings at a time."""
        return len(self.pool.workers)

    @property
    def best(self) -> Trial | None:
        """The trial with the best score among those that were not pruned."""
        complete = [trial for trial in self.trials if (one := self.results.get(trial.number)) and not one.pruned_at]
        found = min(complete, key=lambda trial: self.results[trial.number].score, default=None)
        return found if found and math.isfinite(self.results[found.number].score) else None

    def score(self, trial: Trial) -> float | None:
        """As the measure counts it."""
        found = self.results.get(trial.number)
        return None if found is None else self.sign * found.score

    def events(self) -> Iterator[Event]:
        """Run all trials; finished ones are skipped."""
        with closing(self.pool), alone_in(self.folder):
            for event in self.pool.run_jobs(self._startable(), self._startable):
                if event.kind == "failed" and event.job:
                    self.failures[int(event.job.label)] = event.text
                elif event.kind == "done" and event.job:
                    self._read(self.trials[int(event.job.label) - 1])
                yield event

    def recipe(self, settings: Mapping[str, Any], marks: Milestones = ()) -> Recipe:  # type: ignore[assignment]
        """That of a trial: trained by a single thread, as several run side by side."""
        recipe = read_recipe(self.plain, settings)
        changes: dict[str, Any] = {"threads": recipe.threads or 1}
        if marks:
            changes["training"] = recipe.training.model_copy(update={"milestones": list(marks)})
        return recipe.model_copy(update=changes)

    def _chosen(self, sweep: Sweep) -> Sweep:
        """With the whole recipe, and what is chosen automatically; a resumed sweep keeps that."""
        path = self.folder / SETTINGS
        kept = read_settings(Sweep, path) if path.exists() else None
        search = sweep.search
        if search == "auto" and kept:
            search = kept.search
        elif search == "auto":
            few = combinations(self.spaces) <= sweep.trials
            search = "grid" if few else "tpe" if has_optuna() else "random"
        elif search == "grid" and math.isinf(combinations(self.spaces)):
            raise ConfigError("a grid has no intervals: give each setting values by commas, or use --search random")
        concurrent = sweep.concurrent or (kept.concurrent if kept else max(CONCURRENT, self.workers))
        return sweep.model_copy(update={"search": search, "concurrent": concurrent, "recipe": self.plain})

    def _prepare(self) -> None:
        """The data, which all trials share unless settings of it are varied; and the measure."""
        place = self.folder / PREPARED
        make_folder(place / "data")
        prepared = prepare(self.base, place)
        if "valid" not in prepared.stores:
            raise ConfigError("a sweep needs data to choose by: give --valid, or data.valid_fraction above 0")
        own = any(key.partition(".")[0] in PREPARES for key in self.spaces)
        self.prepared = None if own else place
        self.task = prepared.task
        self.split_sizes = {split: self.task.size(store) for split, store in prepared.stores.items()}
        task, by = self.base.task_class, self.base.evaluation.choose_by
        named = self.sweep.measure or (by if by != "loss" else "")
        known = {one.key: one for one in task.measures}
        for key in ("loss", *task.metrics, *task.shown_scores):
            known.setdefault(key, Measure(key, key.endswith(LOWER), key.replace("_", " ")))
        if named and named not in known:
            raise ConfigError(f"--measure {named}: task {task.name} has {', '.join(known)}")
        self.measures = [known[named]] if named else [*task.measures]

    @property
    def measure(self) -> Measure:
        """What is optimized."""
        return self.measures[0]

    @property
    def sign(self) -> int:
        return 1 if self.measure.lower_is_better else -1

    def _problem(self, settings: Mapping[str, Any]) -> str:
        try:
            self.recipe(settings)
        except ConfigError as error:
            return str(error)
        return ""

    def _startable(self) -> list[Job]:
        """New trials whose proposals need no outcome that is still missing."""
        jobs = []
        kept = self._kept()
        while len(self.trials) < self.sweep.trials and self._ended(len(self.trials) + 1 - self.sweep.concurrent):
            number = len(self.trials) + 1
            found = kept[number - 1] if number <= len(kept) else self._proposal(number)
            if found is None:
                break  # nothing else can be tried
            marks = [(int(step), float(loss)) for step, loss in found["milestones"]]
            recipe = self.recipe(found["settings"], marks)
            job = Job("trial", str(number), self.folder / f"trial-{number:03d}", recipe)
            trial = Trial(number, found["settings"], job)
            if number > len(kept):
                kept.append(found)
                FileManifest(self.folder).write(TRIALS, (json.dumps(kept, indent=1) + "\n").encode())
            self.trials.append(trial)
            make_run_folder(job, self.prepared)
            if job.done:
                self._read(trial)
            else:
                jobs.append(job)
        return jobs

    def _kept(self) -> list[dict[str, Any]]:
        """Settings and milestones of the trials that were begun."""
        path = self.folder / TRIALS
        return read_json(path) if path.exists() else []

    def _ended(self, count: int) -> bool:
        """Whether the first trials have all ended."""
        return all(number in self.results or number in self.failures for number in range(1, count + 1))

    def _proposal(self, number: int) -> dict[str, Any] | None:
        known = max(0, number - self.sweep.concurrent)
        outcomes = [self._outcome(trial, trial.number <= known) for trial in self.trials]
        settings = self.search.propose(outcomes)
        if settings is None:
            return None
        ended = [self.results[n] for n in range(1, known + 1) if n in self.results]
        marks = milestones(self.sweep.prune, [Course(one.curve, not one.pruned_at) for one in ended])
        return {"settings": settings, "milestones": marks}

    def _outcome(self, trial: Trial, known: bool) -> Outcome:
        if not known:
            return Outcome(trial.settings, None)
        if (found := self.results.get(trial.number)) is None:
            return Outcome(trial.settings, math.inf)  # failed, as trainings that diverge do
        return Outcome(trial.settings, found.score, found.pruned_at)

    def _read(self, trial: Trial) -> None:
        """The result of a trial, from its folder."""
        scores = trial.job.results.get("valid", {})
        measure = next((one for one in self.measures if one.key in scores), None)
        if measure is None:
            known = ", ".join(key for key, value in scores.items() if isinstance(value, int | float))
            raise RunError(f"{trial.job.folder}: has no {self.measure.key} of validation data; it has {known}")
        self.measures = [measure]
        value, recipe = scores[measure.key], trial.job.recipe
        score = math.inf if value is None or not math.isfinite(value) else self.sign * float(value)
        by = recipe.evaluation.choose_by
        sign = 1 if by.endswith(LOWER) else -1
        records = [one for one in read_metrics(trial.job.folder / "metrics.jsonl") if one["kind"] == "validation"]
        values = [(one["step"], one.get(f"valid_{by}")) for one in records]
        curve = [(step, math.inf if value is None else sign * value) for step, value in values]
        judge = EarlyStopping(recipe.training)
        for step, value in curve:
            judge.update(value, step)
        self.results[trial.number] = Result(score, curve, curve[-1][0] if judge.missed else 0)


def read_sweep(folder: str | Path) -> Sweep:
    """The settings in the folder of a sweep."""
    return read_settings(Sweep, Path(folder) / SETTINGS)


def is_sweep(path: Path) -> bool:
    """Whether a file is a sweep, and not a recipe."""
    return {"settings", "recipe"} <= (found := read_yaml(path).keys()) and not {"entrants", "seeds"} & found
