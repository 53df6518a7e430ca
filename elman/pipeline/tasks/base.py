"""The parts of a task: one small object for each use by the rest of the package.

    recipe ──settings──▶ typed settings
    files  ──Data──────▶ tokenizers and labels learned from training data, token or example stores, batches
    config ──Models────▶ a model
    model  ──Evaluation▶ validation loss, scores with intervals, samples, plots
           ──Prediction▶ answers to lines of text
           ──Inspection▶ a text as the model reads it, with gradients
           ──Race──────▶ what `elman compare` counts, ranks by and measures

No other module names a task: it takes `TASKS[name]` from a recipe and asks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError, DataError, nearest
from elman.pipeline.tasks.settings import TaskSettings
from elman.training.reports import Validation

if TYPE_CHECKING:
    from elman.corpus import Corpus
    from elman.inspection.inspected_text import InspectedText
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.trained_model import TrainedModel
    from elman.tokenizers import Tokenizer

Settings = dict[str, Any]
Array = NDArray[np.float64]


class ResampledScore(NamedTuple):
    """A score that is a function of sums over examples, which allows a bootstrap: `statistic` takes sums
    (samples, parts) of what each example adds, `units` (examples, parts)."""

    units: NDArray[Any]
    statistic: Callable[[Array], Array]


class EvaluationResult(NamedTuple):
    """Scores of a model on a split, and per-example values of one of them for paired comparisons of two models."""

    scores: dict[str, Any]
    measure: str  # the score that `values` belong to
    values: Array  # of each example
    weights: Array  # the score is sum(values) / sum(weights)
    outputs: list[str] | None = None  # generated texts, where these are scored as a corpus
    references: list[str] | None = None
    others: Mapping[str, ResampledScore] = {}  # more scores to compare by
    notes: tuple[str, ...] = ()
    positions: Array | None = None  # values of single positions, where `values` are sums over them


class Measure(NamedTuple):
    """A score that a race ranks by."""

    key: str
    lower_is_better: bool
    words: str  # its unit, or what it is a share of
    percent: bool = False
    digits: int = 4


class ExampleValues(NamedTuple):
    """The terms of a race's score: values and weights of each example, and mean values by class of an example.

    `tables` maps by_length or by_frequency to rows {from, to, tokens, <measure>}.
    """

    values: Array
    weights: Array
    tables: dict[str, list[dict[str, Any]]]


class ExampleOutput(NamedTuple):
    """One example with the output of each model; higher scores are better."""

    text: str
    expected: str
    outputs: list[str]
    scores: list[float]


class InferenceWork(NamedTuple):
    """The workload that a trained model is timed on: each turn does some work and yields its number of units."""

    rate: str = ""  # name of the result, such as generation_tokens_per_second
    turns: Iterator[int] | None = None
    state_after: Callable[[Tensor], Any] | None = None  # recurrent state after tokens (1, time)
    contexts: Sequence[int] = ()  # numbers of tokens at which the state is measured
    sequence_length: int = 0  # at which each layer's cost is counted; 0 for none


@dataclass
class PreparedData:
    """A corpus as token or example stores in memory-mapped files, with the task that encoded it."""

    task: "Task"
    corpus: "Corpus"
    stores: dict[str, Any] = field(default_factory=dict)

    def repairs(self) -> list[str]:
        """Repairs made while reading."""
        return self.corpus.repairs.describe()

    def fingerprints(self) -> dict[str, str]:
        return {split: store.fingerprint for split, store in self.stores.items()}


class TaskData(ABC):
    """Vocabularies fitted on training data (tokenizers, labels), and the data encoded with them."""

    unit: ClassVar[str]
    """What sizes of data are counted in."""

    @classmethod
    @abstractmethod
    def corpus(cls, recipe: "Recipe") -> "Corpus": ...

    @classmethod
    @abstractmethod
    def learn(cls, recipe: "Recipe", corpus: "Corpus") -> Self:
        """Learn tokenizers and labels from the training split."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write tokenizers and labels to a run folder."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self: ...

    @classmethod
    @abstractmethod
    def is_saved(cls, folder: Path) -> bool: ...

    @abstractmethod
    def store(self, corpus: "Corpus", split: Any, folder: Path) -> Any:
        """A split as memory-mapped arrays with a fingerprint; an existing store is opened, not built again."""

    @abstractmethod
    def size(self, store: Any) -> int:
        """Of a split, in units."""

    @abstractmethod
    def describe(self, store: Any) -> dict[str, Any]:
        """Statistics of a split."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Vocabulary size (`vocabulary`) and what else is reported before the first step."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything that decides the encoding: models with the same one can be combined."""

    @abstractmethod
    def training_batches(self, prepared: PreparedData, recipe: "Recipe") -> Any: ...

    def notes(self, batches: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """Notes for the user before training starts."""
        return []

    def length_warnings(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """Texts of each split that are longer than the model has learned positions for."""
        return []

    @property
    def text_tokenizer(self) -> "Tokenizer | None":
        """The tokenizer of a model that generates and scores text; None for other tasks."""
        return None


class TaskPart:
    """A part of a task that uses the vocabularies in `TaskData`."""

    def __init__(self, data: Any):
        self.data = data


class Models(TaskPart):
    """Builds models."""

    def build(self, config: Any) -> Any:
        raise NotImplementedError

    def warm_start(self, model: Any, recipe: "Recipe") -> str:
        """Copy weights of the run in `start_from` into a new model; returns a note on what was copied."""
        from elman.pipeline.tasks.warm_start import copy_weights

        return copy_weights(model, recipe.start_from)


class Evaluation(TaskPart, ABC):
    """Scores a model on a split."""

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        """Those of `settings.metrics` that this model and data cannot have, each with the reason."""
        return {}

    @abstractmethod
    def validate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Validation: ...

    @abstractmethod
    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult: ...

    @staticmethod
    def compare_outputs(first: EvaluationResult, second: EvaluationResult) -> dict[str, Any]:
        """Further paired tests of two models, beside those of `values` and `others`."""
        return {}

    def facts(self, model: Any) -> dict[str, Any]:
        """Facts about the model for the results."""
        return {}

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """A few output texts at the end of training."""
        return []

    def plots(self, model: Any, prepared: PreparedData, recipe: "Recipe", folder: Path) -> None:
        """Write plots beside the learning curves."""
        return


class Prediction(TaskPart, ABC):
    """Answers lines of text."""

    @abstractmethod
    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """One answer for each line, in order."""

    @abstractmethod
    def format(self, answer: Settings) -> str:
        """An answer of `predict` as a line of text."""

    def pop_warnings(self) -> list[str]:
        """Warnings about the lines predicted since the last call."""
        return []

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> Iterator[Any]:
        """Log-probabilities of texts, of models that define them."""
        raise no_text(self.task)

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> Iterator[Any]:
        """The same, each as soon as its text comes; `config` has the engine and its weights."""
        raise no_text(self.task)

    task: str = ""  # its name, set by `Task`


class Inspection(TaskPart, ABC):
    """Gives a text to a model such that `elman.inspection` can look inside."""

    shortest_text: ClassVar[str] = "a"
    """A text whose trace has every site."""

    @abstractmethod
    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> "InspectedText":
        """A text as the model reads it; `target` is the output to score, for tasks that have one."""


class Race(TaskPart, ABC):
    """Units, ranking criteria and measurements of `elman compare`."""

    unit: ClassVar[str] = "tokens"
    """What training is counted in."""
    default_tokens: ClassVar[int] = 0
    """Default budget in units; 0 for `default_passes` over the training data."""
    default_passes: ClassVar[int] = 3
    entrants: ClassVar[tuple[str, ...]]
    """Families that run where none are given."""
    training: ClassVar[Settings] = {}
    """Training settings of a race that starts from data alone."""
    measures: ClassVar[tuple[Measure, ...]]
    """Ranking criteria in order of preference: the first that the scores contain is used."""
    figures: ClassVar[tuple[str, ...]] = ("loss",)
    """Scores that the table of a report shows."""
    paired_measure: ClassVar[str] = ""
    """The score that `example_values` belong to."""
    usage_note: ClassVar[str] = ""
    """For the report: which inference costs are measured."""
    graded: ClassVar[str] = ""
    """The unit of the scores of `outputs`, for a table of differences; empty where an output is right or wrong."""

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        """Settings of a family's usual model in this task; None for those that its name alone gives."""
        return None

    @abstractmethod
    def example_values(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> ExampleValues: ...

    @abstractmethod
    def outputs(
        self, models: "Sequence[TrainedModel]", prepared: PreparedData, split: str, most: int, longest: int
    ) -> Iterator[ExampleOutput]:
        """Outputs of several models for the first examples of a split."""

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        return InferenceWork()


class deferred:
    """A class attribute that is imported on first use: `Race = deferred("package.module:Name")`."""

    def __init__(self, place: str):
        self.place = place

    def __get__(self, instance: Any, owner: Any) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


class Task:
    """A task with its fitted data. The first line of a subclass's docstring is its description."""

    name: ClassVar[str]
    settings: ClassVar[TaskSettings]
    Data: ClassVar[Any]
    Models: ClassVar[Any]
    Evaluation: ClassVar[Any]
    Prediction: ClassVar[Any]
    Inspection: ClassVar[Any]
    Race: ClassVar[Any]

    def __init__(self, data: Any):
        self.data = data

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: "Corpus") -> Self:
        return cls(cls.Data.learn(recipe, corpus))

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(cls.Data.load(folder, recipe))

    @cached_property
    def models(self) -> Models:
        return self.Models(self.data)

    @cached_property
    def evaluation(self) -> Evaluation:
        return self.Evaluation(self.data)

    @cached_property
    def prediction(self) -> Prediction:
        found: Prediction = self.Prediction(self.data)
        found.task = self.name
        return found

    @cached_property
    def inspection(self) -> Inspection:
        return self.Inspection(self.data)

    @cached_property
    def race(self) -> Race:
        return self.Race(self.data)


def check_metric(metric: str, metrics: Iterable[str], of: str, unavailable: Mapping[str, str] | None = None) -> None:
    """Raises unless the best checkpoint can be chosen by a metric."""
    unavailable = unavailable or {}
    known = ["loss", *(name for name in metrics if name not in unavailable)]
    if metric not in known:
        why = f", since {unavailable[metric]}" if metric in unavailable else nearest(metric, known)
        raise ConfigError(f"evaluation.choose_by: there is no {metric!r} of {of}{why}; one of {', '.join(known)}")


def no_text(task: str) -> ConfigError:
    """The error where a task whose models do not generate text is asked for it."""
    return ConfigError(f"the run is a model of task {task}: use elman predict and elman eval, or .predict()")


def data_changed(run: Path) -> DataError:
    return DataError("the data has changed since the run began", file=run, remedy="put it back, or use another --run")
