"""From a race to jobs: data prepared once, entrants sized and their FLOPs counted, a run folder for every training."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from elman.comparison.budget import VALIDATIONS, Budget, budget_of, per_step, training_flops, with_steps
from elman.comparison.config import Race
from elman.comparison.spaces import Choice, read_spaces, short_names, shown
from elman.config import name_and_settings, override
from elman.errors import ConfigError, RunError
from elman.files import ASIDE, clean_leftovers, make_folder, share
from elman.layers import LAYERS
from elman.layers.laws import examine, sources
from elman.models import MODELS
from elman.models.stack import count_parameters
from elman.pipeline.prepare import prepare
from elman.pipeline.recipe import Recipe, read_recipe, write_recipe
from elman.pipeline.sizes import fit_exactly, parse_count
from elman.pipeline.tasks import PreparedData, Task
from elman.pipeline.tasks.base import data_changed
from elman.pipeline.tasks.pretrained_vectors import with_vector_widths
from elman.pipeline.tasks.settings import in_layers
from elman.runs import FileManifest, Run, environment
from elman.runs.lock import file_lock
from elman.training.learning_rates import DEFAULT_LEARNING_RATE
from elman.untrusted import read_json

PREPARED = "prepared"
LAYERS_ALONE, WORD = 100_000, 150
OWN = ("training", "evaluation", "generation", "search")  # sections of the recipe that an entrant may change
BUDGETED = ("training.max_steps", "training.max_epochs")
UNFIT = re.compile(r"[^\w.=+-]+")  # for the name of a folder
TRIAL_SEED = 0  # not a seed of the race: learning rates are chosen independently of its random numbers


@dataclass(frozen=True)
class Entrant:
    """A model that takes part."""

    name: str
    recipe: Recipe
    parameters: int
    flops: float  # per training unit, 0 for models fitted by counting
    counted: bool  # fitted by counting: deterministic, so it runs once
    sources: dict[str, str]  # the users' files that define it
    epoch: int  # steps of one
    per_step: float  # training units of a step, on average

    def rates(self, count: int, ratio: float) -> list[float]:
        """The learning rates of its search: a geometric grid around that of its recipe."""
        middle = self.recipe.training.learning_rate or DEFAULT_LEARNING_RATE
        return [_rounded(middle * ratio ** (n - (count - 1) / 2)) for n in range(count)]


@dataclass(frozen=True)
class Job:
    """One training, in a folder of its own."""

    entrant: str
    label: str  # rate-0.002 or seed-1
    folder: Path
    recipe: Recipe = field(compare=False)

    @property
    def done(self) -> bool:
        return (self.folder / "results.json").exists()

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of its folder; empty where there is none yet."""
        path = self.folder / name
        if not path.exists():
            return {}
        FileManifest(self.folder).check()
        found = read_json(path)
        if not isinstance(found, dict):
            raise RunError(f"{path}: not a JSON object")
        return found

    @property
    def results(self) -> dict[str, Any]:
        return self.read("results.json")

    @property
    def name(self) -> str:
        return f"{self.entrant} {self.label}"


class RacePlan:
    """Entrants and jobs of a race, determined before the first step."""

    def __init__(self, race: Race, folder: Path):
        self.race, self.folder = race, folder
        shared = race.recipe.get("model") or {}
        self.shared: dict[str, Any] = {"type": shared} if isinstance(shared, str) else dict(shared)
        self.shared.pop("type", None)
        base = {key: value for key, value in race.recipe.items() if key not in ("model", "parameters")}
        self.base = read_recipe(base)
        task_class = self.base.task_class
        named = race.entrants or {name: {} for name in task_class.entrants}
        varied = vary({_checked_folder_name(name): own for name, own in named.items()}, race.settings)
        given = {name: split_settings(name, own) for name, (_, own) in varied.items()}
        models = {
            name: model_settings(task_class, varied[name][0], own, self.shared) for name, (own, _) in given.items()
        }
        _size(race.parameters, 0)  # refuses a bad value before any data is read
        make_folder(folder / PREPARED / "data")
        self.prepared: PreparedData = prepare(self.base, folder / PREPARED)
        if "valid" not in self.prepared.stores:
            raise ConfigError("a race needs data to choose by: give --valid, or data.valid_fraction above 0")
        task = self.prepared.task
        self.batches = task.training_batches(self.prepared, self.base)
        self.epoch = self.batches.length_of(0)
        self.per_step = per_step(self.batches)
        self.budget: Budget = budget_of(race, task_class, self.epoch * self.per_step)
        self.split = "test" if "test" in self.prepared.stores else "valid"
        self.parameters = _size(race.parameters, int(task.describe_vocabulary()["vocabulary"]))
        self.entrants = [self._entrant(name, settings, given[name][1]) for name, settings in models.items()]

    def _entrant(self, name: str, settings: dict[str, Any], others: Mapping[str, Any]) -> Entrant:
        task = self.prepared.task
        plain = override({**self.base.plain(), "model": settings, "parameters": 0, "name": ""}, others)
        try:
            recipe = read_recipe(plain)
        except ConfigError as error:
            raise ConfigError(f"entrant {name}: {error}") from None
        counted = fits_by_counting(settings["type"])
        if not counted and self.parameters:
            model = fit_exactly(recipe.model, self.parameters, task.build, task.typed_model)
            recipe = recipe.model_copy(update={"model": model})
        model = task.build(recipe.model)
        examine(model)
        own = recipe.training != self.base.training
        batches = task.training_batches(self.prepared, recipe) if own else self.batches
        flops = 0.0 if counted else training_flops(model, next(iter(batches.epoch(0))))
        about = name, recipe, count_parameters(model), flops, counted, sources(model)
        return Entrant(*about, batches.length_of(0), per_step(batches) if own else self.per_step)

    def rates(self, entrant: Entrant) -> list[float]:
        """The learning rates that an entrant tries first."""
        return entrant.rates(self.race.trials, self.race.rate_ratio)

    def trials(self) -> list[Job]:
        """Short trainings that choose the learning rate; none where there is only one rate."""
        if self.race.trials == 1 and self.budget.kind != "minutes":
            return []
        return [
            self._trial(entrant, rate)
            for entrant in self.entrants
            if not entrant.counted
            for rate in self.rates(entrant)
        ]

    def extended_trial(self, entrant: Entrant, tried: Sequence[float], best: float) -> Job | None:
        """A trial one step beyond the grid, if the best rate is the lowest or highest tried; none once the entrant has
        started: a resumed race keeps its rate."""
        if len(tried) < 2 or best not in (min(tried), max(tried)):
            return None
        ratio = self.race.rate_ratio
        job = self._trial(entrant, _rounded(best * ratio if best == max(tried) else best / ratio))
        return None if (job.folder.parent / "seed-1").exists() and not job.folder.exists() else job

    def _trial(self, entrant: Entrant, rate: float) -> Job:
        if self.budget.kind == "minutes":  # the speed is not known yet: the same for all, a share of one epoch
            steps = max(20, round(self.race.trial_share * min(entrant.epoch, 1000)))
        else:
            steps = round(self.race.trial_share * self.budget.steps(entrant.per_step, entrant.flops, None))
        return self._job(f"rate-{rate:g}", entrant, max(1, steps), rate, TRIAL_SEED)

    def runs(self, entrant: Entrant, rate: float | None, speed: float | None) -> list[Job]:
        """A job for each seed; a single one for a deterministic model."""
        rate = rate or entrant.recipe.training.learning_rate or DEFAULT_LEARNING_RATE
        steps = 1 if entrant.counted else self.budget.steps(entrant.per_step, entrant.flops, speed)
        seeds = [1] if entrant.counted else range(1, self.race.seeds + 1)
        return [self._job(f"seed-{seed}", entrant, steps, rate, seed) for seed in seeds]

    def _job(self, label: str, entrant: Entrant, steps: int, rate: float, seed: int) -> Job:
        base, own = self.base.training.plain(), entrant.recipe.training.plain()
        given = {*(self.race.recipe.get("training") or {}), *(key for key in own if own[key] != base[key])}
        recipe = with_steps(entrant.recipe, steps, entrant.epoch, given, 1 if seed == TRIAL_SEED else VALIDATIONS)
        training = recipe.training.model_copy(update={"learning_rate": rate})
        recipe = recipe.model_copy(update={"seed": seed, "training": training, "threads": recipe.threads or 1})
        return Job(entrant.name, label, self.folder / entrant.name / label, recipe)

    def make_folder(self, job: Job) -> None:
        """The run folder of a job, ready to be resumed."""
        make_run_folder(job, self.folder / PREPARED)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds the lock of a race or a sweep, and removes the remains of crashes; RunError names another holder."""
    with file_lock(folder / "lock") as alone:
        if alone:
            for place in (folder, folder / "plots", folder / PREPARED, folder / PREPARED / "data"):
                clean_leftovers(place)
        yield


def make_run_folder(job: Job, prepared: Path | None) -> None:
    """The run folder of a job, with the shared tokenizer and token stores if there are such, ready to be resumed."""
    if not (job.folder / "config.yaml").exists():
        Run.create(job.folder, write_recipe(job.recipe), environment())
    run = Run(job.folder)
    run.adopt()
    run.tidy()
    if prepared is None:
        return
    for path in sorted(prepared.rglob("*")):
        place = job.folder / path.relative_to(prepared)
        if path.is_file() and not path.name.startswith(ASIDE) and not place.exists():
            make_folder(place.parent)
            share(path, place)
    if not run.manifest.record(*FileManifest(prepared).names()):
        raise data_changed(job.folder)


def vary(
    entrants: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Every entrant with every combination of the varied settings, under a name such as lstm-dropout=0.1, with the name
    that it had before; n-grams, which have no such settings, once."""
    spaces = read_spaces(settings)
    endless = [key for key, space in spaces.items() if not isinstance(space, Choice)]
    if endless:
        raise ConfigError(
            f"--set {endless[0]}: a race compares a few values, separated by commas; elman sweep searches intervals"
        )
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, given in entrants.items():
        if not spaces or fits_by_counting(str(given.get("type", name))):
            found[name] = name, given
            continue
        for values in product(*(space.ends() for space in spaces.values())):
            ends = short_names(spaces).values()
            own = [f"{end}={UNFIT.sub('_', shown(value))}" for end, value in zip(ends, values, strict=True)]
            found["-".join([name, *own])] = name, {**given, **dict(zip(spaces, values, strict=True))}
    return found


def split_settings(name: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of an entrant's model, and others of its recipe, which are dotted: training.optimizer."""
    model: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in given.items():
        section = key.partition(".")[0]
        if section == "model" or section not in Recipe.model_fields:
            model[key.removeprefix("model.")] = value
        elif section in OWN and key not in BUDGETED:
            others[key] = value
        else:
            why = "the budget of the race decides it" if key in BUDGETED else "all entrants of a race share it"
            raise ConfigError(f"entrant {name}: {key}: {why}; elman sweep varies any setting")
    return model, others


def model_settings(task: type[Task], name: str, given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an entrant's model: those given, above those that all share, above the customary ones of its name.

    A model that is fitted by counting takes none of the shared ones.
    """
    kind, own = name_and_settings(name)  # lstm:forget_bias=3 is a name too
    given = {**override({}, own), **given}
    default, customary = task.default_model, task.customary_model(kind)
    if customary is not None:
        if "pattern" in customary and "pattern" not in given:
            layer = kind if kind in LAYERS else "attention"  # which a Transformer and the forms of attention have
            pattern, given = in_layers(customary["pattern"], layer, given)
            customary = {**customary, "pattern": pattern}
        settings: dict[str, Any] = {"type": default, **customary}
    elif given.keys() & {"type", "pattern", "encoder", "decoder"}:
        settings = {"type": given.get("type", default)}
    else:
        settings = {"type": kind}
    if not fits_by_counting(settings["type"]):
        settings = override(settings, dict(shared))
    try:
        return task.typed_model(with_vector_widths(override(settings, dict(given)))).plain()
    except ConfigError as error:
        raise ConfigError(f"entrant {name}: {error}") from None


def fits_by_counting(model: str) -> bool:
    """Whether a model type is fitted by counting: no size, no learning rate, no randomness."""
    return model in MODELS and getattr(MODELS[model], "fits_by_counting", False)


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def _checked_folder_name(name: str) -> str:
    if Path(name).name != name or not name.isprintable() or name in (PREPARED, "plots"):
        raise ConfigError(f"{name!r} cannot be the name of an entrant: it becomes a folder beside others")
    return name


def _size(asked: str | int, vocabulary: int) -> int:
    """The number of parameters asked for; by default 100k and a narrow vector for each word, rounded."""
    if asked != "auto":
        return parse_count(asked)
    return int(float(f"{LAYERS_ALONE + WORD * vocabulary:.2g}"))
