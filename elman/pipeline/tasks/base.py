"""What a task is: its settings, how its data becomes numbers, which models do it, and how answers are judged."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from elman.config import Config, typed, unknown_key
from elman.corpus import Corpus, DataConfig
from elman.errors import ConfigError, DataError, nearest
from elman.inspection.inspected_text import InspectedText
from elman.layers import LAYERS
from elman.models import TASK_MODELS
from elman.models.stack import on_meta
from elman.pipeline.tasks.starting import start_from
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS
from elman.training import Validation

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

Settings = dict[str, Any]
TRANSFORMER = "transformer"  # a name for layers that belong together, which each task has in its own form


class Parts(NamedTuple):
    """A score that is a function of sums: what each example adds (examples, parts), and the function."""

    units: NDArray[Any]
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Judged(NamedTuple):
    """Scores of a model on a split, and what its main one is a sum of: so that two models can be compared in pairs."""

    scores: dict[str, Any]
    measure: str
    values: NDArray[np.float64]  # of each example
    weights: NDArray[np.float64]  # the score is sum(values) / sum(weights)
    written: list[str] | None = None  # what a model wrote, where that is scored as a whole
    references: list[str] | None = None
    others: Mapping[str, Parts] = {}  # more scores to compare by, under their names
    notes: tuple[str, ...] = ()  # what whoever reads the scores should know
    positions: NDArray[np.float64] | None = None  # of every position of all examples, where values are sums over these


@dataclass
class Prepared:
    """What the data has become: numbers in memory-mapped files, and how they got there."""

    task: "Task"
    corpus: Corpus
    stores: dict[str, Any] = field(default_factory=dict)

    def repairs(self) -> list[str]:
        """What was mended while reading."""
        return self.corpus.repairs.describe()

    def fingerprints(self) -> dict[str, str]:
        return {split: store.fingerprint for split, store in self.stores.items()}


class Task(ABC):
    """An instance is what was learnt of the training data before any model: tokenizers, labels, tags."""

    name: ClassVar[str]
    Data: ClassVar[type[DataConfig]] = DataConfig
    unit: ClassVar[str]
    """What the sizes of data are counted in."""
    default_model: ClassVar[str]
    figures: ClassVar[tuple[str, ...]] = ()
    """What a model can be chosen by besides its loss; `lacking` tells which are not to be had."""
    can_be_made: ClassVar[bool] = False
    """Whether `data.language` can stand for files."""

    @classmethod
    def models(cls) -> Registry[Any]:
        """The kinds of model that do it."""
        return TASK_MODELS[cls.name]

    # From plain settings to typed ones

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        """Settings with those filled in that depend on others."""
        data = settings.get("data") or {}
        given = isinstance(data, Mapping) and (data.get("train") or (cls.can_be_made and data.get("language")))
        if not given:
            raise ConfigError(f"task {cls.name} needs data: give --data FILE, or data.train in the recipe")
        return settings

    @classmethod
    def data_config(cls, settings: Any) -> DataConfig:
        return settings if isinstance(settings, DataConfig) else cls.Data.make(settings, where="data")

    @classmethod
    def tokenizer_config(cls, settings: Any) -> Config:
        return pick(TOKENIZERS, "tokenizer", {"type": settings} if isinstance(settings, str) else settings)

    @classmethod
    def model_config(cls, settings: Any) -> Config:
        """The name of a layer stands for a model of it; settings that only the layer knows go to the layer."""
        settings = {"type": settings} if isinstance(settings, str) else settings
        models = cls.models()
        if isinstance(settings, Mapping):
            settings = {"type": cls.default_model, **settings}
            name = settings["type"]
            if name == TRANSFORMER:
                settings = cls.transformer({key: value for key, value in settings.items() if key != "type"})
            elif isinstance(name, str) and name not in models:
                if name not in LAYERS:
                    raise models.unknown(name, also=[*LAYERS, TRANSFORMER])
                settings = cls.of_layer(name, settings)
        return pick(models, "model", settings)

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """Settings of a model whose pattern is one layer; a pattern given beside the name wins."""
        layer, stack = LAYERS[name].Config.model_fields, cls.models()[cls.default_model].Config.model_fields
        known = {*layer, *stack, "type"}
        for key in settings:
            if key not in known:
                raise ConfigError(unknown_key(key, "model", known))
        own = {key: value for key, value in settings.items() if key in layer and key not in stack}
        rest = {key: value for key, value in settings.items() if key not in own}
        return {"pattern": [{name: own}], **rest, "type": cls.default_model}

    @classmethod
    def transformer(cls, given: Settings) -> Settings:
        """Attention and feed-forward layers in turn, each added to what it reads and with a norm before it; what only
        attention knows goes to it."""
        made = cls.of_layer("attention", given)
        if "pattern" not in given:
            places = {} if given.get("positions", "none") != "none" else {"positions": "rotary"}
            made["pattern"] = [{"attention": {**places, **made["pattern"][0]["attention"]}}, {"feedforward": {}}]
        return {"residual": True, "norm": "pre", **made}

    @staticmethod
    def reads_one_way(layer: str) -> bool:
        return LAYERS[layer].causal

    @classmethod
    def both_ways(cls, settings: Settings, **join: str) -> Settings:
        """The same model with its causal layer, if it is one, taken in both directions."""
        ((layer, own),) = settings["pattern"][0].items()
        if cls.reads_one_way(layer):
            settings["pattern"] = [{"bidirectional": {"layer": {layer: own}, **join}}]
        return settings

    @classmethod
    def try_building(cls, config: Any) -> None:
        """Build without memory, so that what cannot be built is refused before any data is read."""
        on_meta(lambda: cls.smallest(config))

    @classmethod
    @abstractmethod
    def smallest(cls, config: Any) -> Any:
        """The model for the least data there can be."""

    # Data

    @classmethod
    @abstractmethod
    def corpus(cls, recipe: "Recipe") -> Corpus: ...

    @classmethod
    @abstractmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        """Find out from the training data what the numbers shall mean."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Keep what was learnt in a run folder."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self: ...

    @classmethod
    @abstractmethod
    def saved(cls, folder: Path) -> bool:
        """Whether a run folder holds all of it."""

    @abstractmethod
    def store(self, corpus: Corpus, split: Any, folder: Path) -> Any:
        """A split as numbers, in memory-mapped files with a fingerprint; taken as it is if it is there."""

    @abstractmethod
    def size(self, store: Any) -> int:
        """Of a split, in units."""

    @abstractmethod
    def describe(self, store: Any) -> dict[str, Any]:
        """A split in figures."""

    # Models

    def lacking(self, model: Any, prepared: Prepared) -> dict[str, str]:
        """Those of `figures` that this model does not have on this data, and why."""
        return {}

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is worth knowing before the first step; with `vocabulary`."""

    @abstractmethod
    def build(self, config: Any) -> Any: ...

    def begin(self, model: Any, recipe: "Recipe") -> str:
        """Give a new model what the run in `start_from` has learnt; what was taken, in words."""
        return start_from(model, recipe.start_from)

    @abstractmethod
    def training_batches(self, prepared: Prepared, recipe: "Recipe") -> Any: ...

    def notes(self, batches: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        """What someone who trains this should be told."""
        return []

    def too_long(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        """How many texts of each split are longer than the model knows places for, if any are."""
        return []

    def asides(self) -> list[str]:
        """The same of the lines that `predict` was given since this was last asked."""
        return []

    @abstractmethod
    def validate(self, model: Any, prepared: Prepared, recipe: "Recipe") -> Validation: ...

    @abstractmethod
    def judge(self, model: Any, prepared: Prepared, recipe: "Recipe", split: str) -> Judged: ...

    def samples(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        """A few texts to look at, when training is over."""
        return []

    def pictures(self, model: Any, prepared: Prepared, recipe: "Recipe", folder: Path) -> None:
        """What there is to see besides curves, as files."""
        return

    @abstractmethod
    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """One answer for each line, in order; what it holds depends on the task, `plain` says it in a line."""

    @abstractmethod
    def reading(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """A text as the model reads it, for those who look inside; `target` is what a translation is held against."""

    @abstractmethod
    def plain(self, answer: Settings) -> str:
        """An answer of `predict` as text."""


def pick(registry: Registry[Any], where: str, settings: Any) -> Config:
    """The settings of what is named by their `type`."""
    if isinstance(settings, Config):
        return settings
    if not isinstance(settings, Mapping) or not isinstance(settings.get("type"), str):
        raise ConfigError(f"{where}: needs a type, one of {', '.join(registry)}, but got {settings!r}")
    return typed(settings["type"], registry[settings["type"]].Config).make(settings, where)


def check_figure(figure: str, figures: Iterable[str], of: str, lacking: Mapping[str, str] | None = None) -> None:
    """An error unless a model can be chosen by it; `lacking` are figures that are not to be had, and why."""
    lacking = lacking or {}
    known = ["loss", *(name for name in figures if name not in lacking)]
    if figure not in known:
        why = f", since {lacking[figure]}" if figure in lacking else nearest(figure, known)
        raise ConfigError(f"evaluation.choose_by: there is no {figure!r} of {of}{why}; one of {', '.join(known)}")


def changed(run: Path) -> DataError:
    return DataError("the data has changed since the run began", file=run, remedy="put it back, or give another --run")
