"""A whole run as one typed tree: data, tokenizer, model, training, evaluation, generation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, model_validator

from elman.config import Config, commented_yaml, override, read_yaml
from elman.corpus import DataConfig
from elman.errors import ConfigError, nearest
from elman.evaluation import EvaluationConfig
from elman.generation import GenerationConfig
from elman.pipeline.tasks import TASKS, Task
from elman.pipeline.tasks.base import check_figure
from elman.pipeline.tasks.classify import Classify
from elman.pipeline.tasks.searching import SearchConfig
from elman.pipeline.tasks.starting import body_settings
from elman.pipeline.tasks.tag import Tag
from elman.pipeline.tasks.translate import Translate
from elman.training import TrainingConfig

DEFAULT = "language-model"


class Goal(Config):
    """What a recipe promises."""

    measure: str = "valid.loss"
    """Figure of the run's results, by its place there: valid.loss, test.perplexity, valid.language.excess.relative."""
    at_most: float | None = None
    """Largest value that keeps the promise."""
    at_least: float | None = None
    """Smallest value that keeps it."""
    minutes: float | None = None
    """Time it may take."""
    machine: str = "cpu"
    """Where that time holds."""


class Recipe(Config):
    """Everything that decides a run."""

    task: Literal["language-model", "classify", "tag", "translate", "masked"] = "language-model"
    """What to learn: language-model (what comes next), classify (labels of texts), tag (a tag for each word), translate
    (any sequence from any other), masked (what was hidden)."""
    name: str = ""
    """What to call the run; empty makes a name of data and model."""
    seed: int = Field(1, ge=0)
    """All dice of the run come from this number."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes an accelerator if there is one."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes one for small recurrent models, which are fastest so, and all cores otherwise."""
    parameters: str | int = 0
    """Solve model.hidden_size for about so many parameters (5M, 250k); 0 leaves it as it is."""
    data: SerializeAsAny[DataConfig] = DataConfig()
    """Where the text comes from."""
    tokenizer: SerializeAsAny[Config] = Field(default_factory=lambda: TASKS[DEFAULT].tokenizer_config("word"))
    """How text becomes tokens."""
    model: SerializeAsAny[Config] = Field(default_factory=lambda: TASKS[DEFAULT].model_config("lstm"))
    """What is trained."""
    start_from: str = ""
    """Run folder of a language model or masked model whose word vectors and layers a model that classifies or tags
    begins with: a classifier with its tokenizer, a tagger with the vectors of words that both know and, unless it is
    told otherwise, without characters. Or of a model that translates, for another. Empty begins with random numbers."""
    training: TrainingConfig = TrainingConfig()
    """How it learns."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How it is judged."""
    generation: GenerationConfig = GenerationConfig()
    """How it speaks."""
    search: SearchConfig = SearchConfig()
    """How translations are looked for."""
    goals: list[Goal] = Field(default_factory=list)
    """What the recipe must reach; `elman train` says at the end whether it did."""

    @model_validator(mode="before")
    @classmethod
    def _by_task(cls, settings: Any) -> Any:
        """Data, tokenizer and model are settings of the task's own kind."""
        if not isinstance(settings, Mapping):
            return settings
        task = TASKS.get(settings.get("task", DEFAULT))
        if task is None:
            return settings
        typed = {"data": task.data_config, "tokenizer": task.tokenizer_config, "model": task.model_config}
        return {**settings, **{key: read(settings[key]) for key, read in typed.items() if key in settings}}

    @property
    def kind(self) -> type[Task]:
        """The task."""
        return TASKS[self.task]


def read_recipe(
    source: "str | Path | Mapping[str, Any] | Recipe | None" = None, overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """From a YAML file or plain settings (or neither), with dotted overrides on top."""
    if isinstance(source, Recipe):
        source = source.plain()
    settings = dict(source) if isinstance(source, Mapping) else read_yaml(source) if source else {}
    overrides = overrides or {}
    settings = _completed(override(settings, overrides))
    if settings.get("start_from") and settings["task"] == Classify.name and any(_names_tokenizer(o) for o in overrides):
        raise ConfigError(f"tokenizer: that of {settings['start_from']} comes along with start_from; leave it out")
    recipe = Recipe.make(settings)
    if not recipe.parameters:  # else the width is still open
        recipe.kind.try_building(recipe.model)
    check_figure(recipe.evaluation.choose_by, recipe.kind.figures, f"task {recipe.task}")
    return recipe


def columns_of(names: str, task: str | None) -> dict[str, Any]:
    """The settings behind --columns."""
    parts = [int(part) if part.strip().lstrip("-").isdigit() else part.strip() for part in names.split(",")]
    if task == "tag" and len(parts) == 2:
        return {"data.columns.word": parts[0], "data.columns.tag": parts[1]}
    return {"data.columns": parts}


def _completed(settings: dict[str, Any]) -> dict[str, Any]:
    """With all that follows from other settings."""
    task = task_of(settings)
    settings = {**task.completed(settings), "task": task.name}
    model = settings.get("model") or {}
    if settings.get("start_from"):
        if not issubclass(task, Classify | Tag | Translate):
            raise ConfigError("start_from: only models that classify, tag or translate begin with another run")
        given = {"type": model} if isinstance(model, str) else model
        model = _over(body_settings(str(settings["start_from"]), task.name, given), given)
    return {**settings, "model": model or task.default_model}


def task_of(settings: Mapping[str, Any]) -> type[Task]:
    """That of a recipe; a model may tell it."""
    name = settings.get("task") or ("masked" if _kind(settings.get("model")) == "masked" else DEFAULT)
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}{nearest(str(name), TASKS)}; known: {', '.join(TASKS)}")
    return TASKS[name]


def _over(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with what is given in their place, branch by branch."""
    both = {key: (settings.get(key), value) for key, value in given.items()}
    merged = {k: _over(a, b) if isinstance(a, Mapping) and isinstance(b, Mapping) else b for k, (a, b) in both.items()}
    return {**settings, **merged}


def _names_tokenizer(place: str) -> bool:
    return place.partition(".")[0] == "tokenizer"


def _kind(model: Any) -> Any:
    return model.get("type") if isinstance(model, Mapping) else model


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every setting."""
    return commented_yaml(recipe)
