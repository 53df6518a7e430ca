"""The interface of synthetic tasks: endless examples with known answers, and published claims about model families."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from elman import config as base_config
from elman.corpus.document import SPLITS
from elman.errors import UnknownName
from elman.registry import Registry

NEAR = 0.2  # up to this progress from chance to perfect, a score is "about chance"
CLEARLY = 0.05  # a smaller lead in progress could be noise


class SyntheticExamples(NamedTuple):
    """A batch of rows. Models are causal, so `mask` also covers padding."""

    inputs: np.ndarray  # (rows, time) symbol ids, or (rows, time, channels) values
    targets: np.ndarray  # (rows, time) class ids, or values
    mask: np.ndarray  # (rows, time) bool: positions that count


class Claim(NamedTuple):
    """A published result about a family, or about two."""

    family: str
    does: Literal["solves", "fails", "beats"]
    other: str = ""


def claimed(does: Literal["solves", "fails"], *families: str) -> list[Claim]:
    """The same claim about several families."""
    return [Claim(family, does) for family in families]


class Check(NamedTuple):
    statement: str
    held: bool


class SyntheticTask(ABC):
    """Constructed as `Task(config)`; subclasses define `draw` and the class variables below."""

    name: ClassVar[str]
    measure: ClassVar[Literal["accuracy", "squared error", "nats"]] = "accuracy"
    """The score: accuracy or mean loss over positions in the mask."""
    solved: float
    """The score from which the task counts as solved."""
    chance: float
    """The score of a model without memory."""
    symbols: int
    """Number of input symbols; 0 if inputs are real values."""
    channels: int = 0
    """Number of input values per time step; 0 if inputs are symbols."""
    answers: int
    """Number of output classes; 0 if outputs are real values."""
    claims: ClassVar[list[Claim]]
    quick: ClassVar[dict[str, Any]] = {}
    """Settings of a small version that trains on two CPU cores."""

    class Config(base_config.Config):
        pass

    def __init__(self, config: Config):
        self.config = config

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        """Random examples; training and validation have the same distribution, test may be harder."""

    def examples(self, split: str, number: int, rows: int, seed: int = 1) -> SyntheticExamples:
        """Batch `number` of a split: reproducible, and different for every number."""
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        return self.draw(np.random.default_rng([seed, SPLITS.index(split), number]), rows, split == "test")

    def progress(self, score: float) -> float:
        """Linear rescaling of a score from chance (0) to perfect (1)."""
        perfect = 1.0 if self.measure == "accuracy" else 0.0
        return (score - self.chance) / (perfect - self.chance)

    def is_solved(self, score: float) -> bool:
        return self.progress(score) >= self.progress(self.solved)

    def show(self, score: float) -> str:
        """A score as text."""
        return f"{100 * score:.3g} %" if self.measure == "accuracy" else f"{score:.3g}"

    def expected(self, scores: Mapping[str, float]) -> list[Check]:
        """Checks of the published claims about families that have a score."""
        return [self._check(claim, scores) for claim in self.claims if {claim.family, claim.other} - {""} <= {*scores}]

    def _check(self, claim: Claim, scores: Mapping[str, float]) -> Check:
        own = scores[claim.family]
        said = f"{claim.family} {self.show(own)}"
        if claim.does == "beats":
            other = scores[claim.other]
            better = self.progress(own) - self.progress(other) > CLEARLY
            return Check(f"{said} better than {claim.other} {self.show(other)}", better)
        if claim.does == "fails":
            return Check(f"{said} about chance ({self.show(self.chance)})", self.progress(own) <= NEAR)
        sign = "≥" if self.measure == "accuracy" else "≤"
        return Check(f"{said} {sign} {self.show(self.solved)}", self.is_solved(own))


TASKS: Registry[SyntheticTask] = Registry("task")


def asked_at_the_end(inputs: np.ndarray, answers: np.ndarray) -> SyntheticExamples:
    """Rows whose last steps have the answers as targets; the steps before do not count."""
    before = inputs.shape[1] - answers.shape[1]
    targets = np.pad(answers, ((0, 0), (before, 0)))
    return SyntheticExamples(inputs, targets, np.broadcast_to(np.arange(inputs.shape[1]) >= before, targets.shape))


def distinct(rng: np.random.Generator, rows: int, among: int, count: int) -> np.ndarray:
    """In each row, `count` distinct numbers below `among`, in random order."""
    return rng.random((rows, among)).argsort(axis=1)[:, :count]
