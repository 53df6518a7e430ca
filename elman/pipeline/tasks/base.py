"""A task is one class made of eight small interfaces, each of which answers one question.

    TaskSettings    recipe ──typed_data, typed_tokenizer, typed_model──▶ typed settings (settings.py)
    TaskData        files  ──corpus, learn, store, training_batches────▶ tokenizers and labels learned, batches
    TaskModels      config ──build──────────────▶ a model
    TaskEvaluation  model  ──validate, evaluate─▶ validation loss, scores with intervals
    TaskPrediction         ──predict, format────▶ answers to lines of text
    TaskServing            ──served─────────────▶ the same answers over HTTP (serving.py)
    TaskInspection         ──inspect────────────▶ a text as the model reads it, with gradients
    RaceRules              ──example_values, …──▶ what `elman compare` counts, ranks by and measures (race.py)

No other module names a task: it takes `TASKS[name]` from a recipe and asks.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_origin

import numpy as np
from numpy.typing import NDArray

from elman.corpus.config import RECORD_FORMATS
from elman.corpus.text import text_table
from elman.errors import ConfigError, DataError, first_line, nearest
from elman.models.stack import check_size, on_meta
from elman.pipeline.tasks.position_checks import length_warning
from elman.pipeline.tasks.race import RaceRules
from elman.pipeline.tasks.serving import TaskServing
from elman.pipeline.tasks.settings import Settings, TaskSettings
from elman.training.reports import Validation

if TYPE_CHECKING:
    from elman.compiler.cpu.standalone import StepModel
    from elman.corpus import Corpus, SourceReader
    from elman.corpus.config import Table
    from elman.inspection.inspected_text import InspectedText
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.tasks.pretrained_vectors import Vocabulary

LITTLE = "scores will vary with chance, and a model can learn little more than to repeat them"
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


@dataclass
class PreparedData:
    """A corpus as token or example stores in memory-mapped files, with the task that encoded it."""

    task: "Task"
    corpus: Any  # of the kind that the task reads
    stores: dict[str, Any] = field(default_factory=dict)

    def repairs(self) -> list[str]:
        """What reading had to mend in the data, each kind with its count."""
        return self.corpus.repairs.describe()

    def fingerprints(self) -> dict[str, str]:
        return {split: store.fingerprint for split, store in self.stores.items()}


class TaskData(ABC):
    """What is learned from training data, and how data are encoded."""

    saved_files: ClassVar[tuple[str, ...]]
    """What `save` writes."""
    unit: ClassVar[str]
    """What sizes of data are counted in."""

    @classmethod
    @abstractmethod
    def corpus(cls, recipe: "Recipe") -> "Corpus":
        """The texts and labels that the recipe names."""

    @classmethod
    @abstractmethod
    def learn(cls, recipe: "Recipe", corpus: Any) -> Self:
        """Learn tokenizers and labels from the training split."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write tokenizers and labels to a run folder."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        """The same task from these files."""

    @classmethod
    def from_files(cls, folder: Path, recipe: "Recipe") -> Self:
        """`load`, with an error of one sentence for files that are damaged or do not fit together."""
        try:
            return cls.load(folder, recipe)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            files = ", ".join(cls.saved_files)
            reason = f"{files} are damaged or do not fit together: {type(error).__name__}: {first_line(error)[:200]}"
            raise DataError(reason, file=folder, remedy="copy the run again, or train it again") from None

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return all((folder / name).exists() for name in cls.saved_files)

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything that decides the encoding: models with the same one can be combined."""

    @abstractmethod
    def describe_vocabulary(self) -> Settings:
        """Its size (`vocabulary`) and what else is reported before the first step."""

    @abstractmethod
    def store(self, corpus: "Corpus", split: Any, folder: Path) -> Any:
        """A split as memory-mapped arrays with a fingerprint; an existing store is opened, not built again."""

    @abstractmethod
    def size(self, store: Any) -> int:
        """Of a split, in units."""

    @abstractmethod
    def describe(self, store: Any) -> Settings:
        """Statistics of a split."""

    def class_counts(self, store: Any) -> dict[str, int]:
        """How often each label or tag occurs in a split; empty for tasks without such classes."""
        return {}

    @abstractmethod
    def training_batches(self, prepared: PreparedData, recipe: "Recipe") -> Any:
        """The training split in batches."""

    def notes(self, batches: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """Notes for the user before training starts."""
        return []

    def length_warnings(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """Texts of each split that are longer than the model has learned positions for."""
        return []


class TaskModels(ABC):
    """How models are built."""

    @abstractmethod
    def build(self, config: Any) -> Any:
        """A new model for what was learned."""

    def outline(self, config: Any) -> Any:
        """The model on the meta device; an error if it would not fit in memory."""
        model = on_meta(lambda: self.build(config))
        check_size(model, memory=True)
        return model

    def warm_start(self, model: Any, recipe: "Recipe") -> str:
        """Copy weights of the run in `start_from` into a new model; returns a note on what was copied."""
        from elman.pipeline.tasks.warm_start import copy_weights

        return copy_weights(model, recipe.start_from)

    def vocabularies(self, model: Any) -> "list[Vocabulary]":
        """The words of each table of word vectors, which pretrained ones are found by."""
        return []


class TaskEvaluation(ABC):
    """How a model is judged during training, and at its end."""

    can_calibrate: ClassVar[bool] = False
    """Whether `calibrate` can fit the probabilities to held-out data."""

    def calibrate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Settings:
        """Fit the probabilities of a model to the validation split: the temperature, and scores before and after."""
        raise NotImplementedError

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        """Those of `metrics` that this model and data cannot have, each with the reason."""
        return {}

    @abstractmethod
    def validate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Validation:
        """The loss during training, and the score that the best checkpoint is chosen by."""

    @abstractmethod
    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        """All scores of a model on a split."""

    @staticmethod
    def compare_outputs(first: EvaluationResult, second: EvaluationResult) -> Settings:
        """Further paired tests of two models, beside those of `values` and `others`."""
        return {}

    def describe_model(self, model: Any) -> Settings:
        """What the results of a run say of its model, beside scores."""
        return {}

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe", quick: bool = False) -> list[str]:
        """A few output texts at the end of training; or, `quick`, fewer or shorter ones at a validation."""
        return []

    def plots(self, model: Any, prepared: PreparedData, recipe: "Recipe", folder: Path) -> None:
        """Write plots beside the learning curves."""
        return


class TaskPrediction(ABC):
    """How lines of text are answered."""

    name: ClassVar[str]
    generates_text: ClassVar[bool] = False
    """Whether models continue and score any text, with the task's `tokenizer`."""
    has_probabilities: ClassVar[bool] = True
    """Whether `predict` can give probabilities with its answers."""

    window: int | None = None
    """Lines predicted together; None: few at first, so that the first answers come soon, then more."""
    inputs: ClassVar[tuple[str, ...]] = ("text",)
    """Fields of a line that `predict` reads the text from: the first one that the line has."""

    def step_model(self, model: Any) -> "StepModel":
        """A trained model as a step over tokens, for programs without Python; an error if it has no such form."""
        raise ConfigError(f"models of task {self.name} have no form of single steps over the tokens of one text")

    def opening(self, data: Path) -> list[int]:
        """The tokens before a generated text without a prompt, from the encoded data of the run."""
        return []

    def open_table(self, reader: "SourceReader", recipe: "Recipe", header: bool) -> "Table":
        """The records of a file to predict; the lines of a text."""
        form = reader.source.format
        return (
            RECORD_FORMATS[form]().table(reader, header)
            if form in RECORD_FORMATS
            else text_table(reader, self.inputs[0])
        )

    def answer_columns(self, answer: Settings) -> Settings:
        """An answer as columns of a table: `probabilities: {a: 0.5}` becomes `probability_a: 0.5`."""
        columns: Settings = {}
        for name, value in answer.items():
            if isinstance(value, dict):
                prefix = "probability" if name == "probabilities" else name
                columns |= {f"{prefix}_{key}": part for key, part in value.items()}
            else:
                columns[name] = value
        return columns

    @abstractmethod
    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """One answer for each line, in order."""

    @abstractmethod
    def format(self, answer: Settings) -> str:
        """An answer of `predict` as a line of text."""

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> Iterator[Any]:
        """Log-probabilities of texts, of models that define them."""
        raise no_text(self.name)

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> Iterator[Any]:
        """The same, each as soon as its text comes; `config` has the engine and its weights."""
        raise no_text(self.name)

    can_abstain: ClassVar[bool] = False
    """Whether `abstain` can leave an answer empty."""

    def abstain(self, answer: Settings, least: float) -> Settings:
        """An answer with `probabilities`, empty where it is less probable than this."""
        raise NotImplementedError

    @cached_property
    def long_lines(self) -> Counter[tuple[str, int | None]]:
        """Lines longer than the model has positions for: their number by what is long ("are"), and by positions."""
        return Counter()

    counts: ClassVar[tuple[str, ...]] = ("long_lines",)
    """Attributes that `pop_warnings` and `pop_notes` tell of, and that add up where processes share the lines."""

    def pop_warnings(self) -> list[str]:
        """Warnings about the lines predicted since the last call."""
        lines = self.long_lines.items()
        found = [note for (what, most), count in lines for note in length_warning(count, f"lines {what}", most)]
        self.long_lines.clear()
        return found

    def pop_notes(self) -> list[str]:
        """What was done to the lines predicted since the last call."""
        return []


class TaskInspection(ABC):
    """How a text is looked into."""

    shortest_text: ClassVar[str] = "a"
    """A text whose trace has every site."""

    @abstractmethod
    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> "InspectedText":
        """A text as the model reads it; `target` is the output to score, for tasks that have one."""


class Task(TaskSettings, TaskData, TaskModels, TaskEvaluation, TaskPrediction, TaskServing, TaskInspection, RaceRules):
    """A task with what it has learned from training data: vocabularies, labels, statistics of targets.

    The first line of a subclass's docstring is its description.
    """

    def speed_unit(self, recipe: "Recipe") -> str:
        """What the speed of training counts."""
        return self.race_unit or self.unit

    @classmethod
    def missing(cls) -> list[str]:
        """Methods and attributes that every task must have, and this class has not."""
        declared = [pair for base in cls.__mro__ for pair in get_annotations(base).items()]
        attributes = {name for name, kind in declared if get_origin(kind) is ClassVar and not hasattr(cls, name)}
        return sorted({*cls.__abstractmethods__, *attributes})


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
