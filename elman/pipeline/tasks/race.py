"""What `elman compare` asks of a task: what it counts, ranks by and measures."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elman.pipeline.tasks.settings import Settings

if TYPE_CHECKING:
    from elman.pipeline.tasks.base import PreparedData
    from elman.pipeline.trained_model import TrainedModel

CONTEXTS = (1, 16, 64, 256, 1024)  # tokens after which the size of the recurrent state is measured
RIGHT = "✓"  # shown for a right output
FREQUENCIES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 10**9)  # occurrences of a word in the training text


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

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
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


class RaceRules(ABC):
    """The part of a task that only races use."""

    race_unit: ClassVar[str] = ""
    """What training is counted in, where that is not the task's `unit`."""
    race_tokens: ClassVar[int] = 0
    """Default budget in units; 0 for a few epochs."""
    race_training: ClassVar[Settings] = {}
    """Training settings of a race that starts from data alone."""
    races_stacks: ClassVar[bool] = False
    """Whether a model is one stack of layers, so that a family's customary stack runs."""
    entrants: ClassVar[tuple[str, ...]]
    """Families that run where none are given."""
    measures: ClassVar[tuple[Measure, ...]]
    """Ranking criteria in order of preference: the first that the scores contain is used."""
    shown_scores: ClassVar[tuple[str, ...]] = ("loss",)
    """Scores that the table of a report shows."""
    paired_measure: ClassVar[str] = ""
    """The score that `example_values` belong to."""
    cost_note: ClassVar[str] = ""
    """For the report: which inference costs are measured."""
    graded: ClassVar[str] = ""
    """The unit of the scores of `race_outputs`, for a table of differences; empty where an output is right or wrong."""

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        """Settings of a family's usual model in this task; None for those that its name alone gives."""
        from elman.pipeline.families import STACKS

        return STACKS.get(name) if cls.races_stacks else None

    @abstractmethod
    def example_values(self, trained: "TrainedModel", prepared: "PreparedData", split: str) -> ExampleValues:
        """The terms of the score of a model, example by example."""

    @abstractmethod
    def race_outputs(
        self, models: "Sequence[TrainedModel]", prepared: "PreparedData", split: str, most: int, longest: int
    ) -> Iterator[ExampleOutput]:
        """Outputs of several models for the first examples of a split."""

    def inference_work(self, trained: "TrainedModel", prepared: "PreparedData", split: str) -> InferenceWork:
        return InferenceWork()


def class_means(
    sizes: NDArray[Any], edges: NDArray[Any], values: NDArray[Any], weights: NDArray[Any], name: str
) -> list[dict[str, Any]]:
    """Mean values of those whose size lies between two edges; the last class is open."""
    bins = np.searchsorted(edges, sizes, side="right") - 1
    sums, totals = (np.bincount(bins, part, minlength=len(edges)) for part in (values, weights))
    tops = [*(int(edge) - 1 for edge in edges[1:]), int(max(sizes.max(initial=0), edges[-1]))]
    return [
        {"from": int(edges[place]), "to": tops[place], "tokens": int(total), name: float(sums[place] / total)}
        for place, total in enumerate(totals)
        if total
    ]
