"""Recipe: all settings of a run as one typed tree of data, tokenizer, model, training, evaluation and generation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field, SerializeAsAny, model_validator

from elman.config import Config, commented_yaml, override, with_type
from elman.corpus.config import DataConfig
from elman.errors import ConfigError
from elman.evaluation.config import EvaluationConfig
from elman.generation.sampling import GenerationConfig
from elman.pipeline.tasks import DEFAULT, TASKS, Task
from elman.pipeline.tasks.base import check_metric
from elman.pipeline.tasks.pretrained_vectors import with_vector_widths
from elman.pipeline.tasks.search import SearchConfig
from elman.runs import Run
from elman.training.config import TrainingConfig
from elman.untrusted import read_yaml


class Goal(Config):
    """A score that a recipe must reach."""

    measure: str = "valid.loss"
    """Path of a score in the run's results: valid.loss, test.perplexity, valid.language.excess.relative."""
    at_most: float | None = None
    """Largest value that meets the goal."""
    at_least: float | None = None
    """Smallest value that meets it."""
    minutes: float | None = None
    """Time limit."""
    machine: str = "cpu"
    """Machine that the time limit is for."""


class Recipe(Config):
    """All settings of a run."""

    task: str = DEFAULT
    """What to learn: language-model (the next token), classify (labels of texts), tag (a tag for each word), translate
    (any sequence from any other), masked (hidden tokens), regress (a number for a text); or a task of your own."""
    name: str = ""
    """Name of the run; empty makes one of data and model."""
    seed: int = Field(1, ge=0)
    """Random seed of initial weights, data order, dropout and sampling."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; auto takes an accelerator if there is one."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes one for small recurrent models, which are fastest so, and all cores otherwise."""
    parameters: str | int = 0
    """Solve model.hidden_size for about so many parameters (5M, 250k); 0 leaves it as it is."""
    data: SerializeAsAny[DataConfig] = DataConfig()
    """Training, validation and test data."""
    tokenizer: SerializeAsAny[Config] = Field(default_factory=lambda: TASKS[DEFAULT].typed_tokenizer("word"))
    """Tokenizer."""
    model: SerializeAsAny[Config] = Field(default_factory=lambda: TASKS[DEFAULT].typed_model("lstm"))
    """Model."""
    start_from: str = ""
    """Warm start: the run folder of a language model or masked model whose word vectors and layers a classifier, a
    regressor or a tagger starts from: the first two with its tokenizer, a tagger with the vectors of words that both
    know and, by default, without characters. Or of a translator, for another. Empty starts from random weights."""
    training: TrainingConfig = TrainingConfig()
    """Optimization."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation."""
    generation: GenerationConfig = GenerationConfig()
    """Text generation."""
    search: SearchConfig = SearchConfig()
    """Search for the output of a translator."""
    goals: list[Goal] = Field(default_factory=list)
    """Scores that the recipe must reach; `elman train` reports at the end whether it did."""

    @model_validator(mode="before")
    @classmethod
    def _by_task(cls, settings: Any) -> Any:
        """Data, tokenizer and model have settings of the task's own types."""
        if not isinstance(settings, Mapping):
            return settings
        task = TASKS[settings.get("task", DEFAULT)]
        typed = {"data": task.typed_data, "tokenizer": task.typed_tokenizer, "model": task.typed_model}
        return {**settings, **{key: read(settings[key]) for key, read in typed.items() if key in settings}}

    @property
    def task_class(self) -> type[Task]:
        return TASKS[self.task]


_checked: WeakValueDictionary[int, Recipe] = WeakValueDictionary()  # recipes that `read_recipe` has made, by id


def read_recipe(
    source: "str | Path | Mapping[str, Any] | Recipe | None" = None,
    overrides: Mapping[str, Any] | None = None,
    complete: bool = False,
) -> Recipe:
    """From a YAML file or plain settings (or neither), with dotted overrides on top. A `complete` one takes nothing
    from the run that `start_from` names."""
    if isinstance(source, Recipe):
        if not overrides and _checked.get(id(source)) is source:
            return source
        source = source.plain()
    settings = dict(source) if isinstance(source, Mapping) else read_yaml(source) if source else {}
    overrides = overrides or {}
    settings = _completed(override(settings, overrides), complete)
    task = TASKS[settings["task"]]
    sections = {key.partition(".")[0] for key in overrides}
    if settings.get("start_from") and task.inherits_tokenizer and "tokenizer" in sections:
        raise ConfigError(f"tokenizer: that of {settings['start_from']} comes along with start_from; leave it out")
    recipe = Recipe.make(settings)
    if not recipe.parameters:  # else the width is still open
        task.check_model(recipe.model)
    check_metric(recipe.evaluation.choose_by, task.metrics, f"task {recipe.task}")
    if recipe.evaluation.calibrate and not task.can_calibrate:
        raise ConfigError(f"evaluation.calibrate goes with classifiers, not with task {recipe.task}")
    _checked[id(recipe)] = recipe
    return recipe


def columns_of(names: str, task: str | None) -> dict[str, Any]:
    """The settings behind --columns."""
    parts = [int(part) if part.strip().lstrip("-").isdigit() else part.strip() for part in names.split(",")]
    return TASKS[task or DEFAULT].columns(parts)


def check_targets(task: str) -> None:
    """Raises unless the data of a task has targets, which may be in files of their own."""
    if not TASKS[task].has_targets:
        able = ", ".join(name for name in TASKS if TASKS[name].has_targets)
        raise ConfigError(f"--target goes with --task {able}, not with {task}")


def stored_recipe(run: Run) -> Recipe:
    """The recipe of a run, read without a look at anything that it names."""
    return read_recipe(read_yaml(run.config), complete=True)


def _completed(settings: dict[str, Any], complete: bool) -> dict[str, Any]:
    """With defaults that depend on other settings."""
    if isinstance(settings.get("model"), str | Mapping):
        settings = {**settings, "model": with_type(settings["model"])}
    task = task_of(settings)
    settings = {**task.complete(settings), "task": task.name}
    model, run = settings.get("model") or {}, settings.get("start_from")
    if not complete:
        model = with_vector_widths(model)
    if run and not complete:
        if isinstance(model, Mapping) and model.get("vectors"):
            raise ConfigError("start_from brings its own word vectors: leave model.vectors out")
        if not task.starts_from:
            able = ", ".join(name for name in TASKS if TASKS[name].starts_from)
            raise ConfigError(f"start_from: models of task {task.name} start from no other run, but those of {able}")
        stored = read_yaml(Run.open(str(run)).config)
        model = _merge(task.starting_body(str(run), stored, model), model)
    return {**settings, "model": model or task.default_model}


def task_of(settings: Mapping[str, Any]) -> type[Task]:
    """The task of a recipe; without a name, that which its kind of model implies."""
    if settings.get("task"):
        return TASKS[settings["task"]]
    model = settings.get("model")
    model = model.get("type") if isinstance(model, Mapping) else model
    return TASKS[next((name for name in TASKS if model and model in TASKS[name].implied_by), DEFAULT)]


def _merge(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings overridden by others, section by section."""
    both = {key: (settings.get(key), value) for key, value in given.items()}
    merged = {k: _merge(a, b) if isinstance(a, Mapping) and isinstance(b, Mapping) else b for k, (a, b) in both.items()}
    return {**settings, **merged}


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every setting."""
    return commented_yaml(recipe)
