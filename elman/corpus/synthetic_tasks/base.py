"""A task: endless examples of one question whose answers are known, and what was published about who can answer it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from elman import config as settings
from elman.errors import UnknownName
from elman.registry import Registry

SPLITS = ("train", "valid", "test")
NEAR = 0.2  # up to this share of the way from chance to perfect, a score is "about chance"
CLEARLY = 0.05  # a lead below this share of the way could be luck


class SyntheticExamples(NamedTuple):
    """Rows side by side. Models read from left to right, so `mask` is all that padding needs too."""

    inputs: np.ndarray  # (rows, time) numbers of symbols, or (rows, time, channels) values
    targets: np.ndarray  # (rows, time) numbers of answers, or values
    mask: np.ndarray  # (rows, time): where the answer counts


class Claim(NamedTuple):
    """What the literature found of one family, or of one beside another."""

    family: str
    does: Literal["solves", "fails", "beats"]
    other: str = ""


class Check(NamedTuple):
    statement: str
    held: bool


class SyntheticTask(ABC):
    """Built as `Task(config)`; a subclass gives `draw` and the numbers below."""

    name: ClassVar[str]
    measure: ClassVar[Literal["accuracy", "squared error", "nats"]] = "accuracy"
    """What a score is: share of right answers, or mean loss; the loss is always over mask positions."""
    solved: float
    """The score from which the task counts as solved."""
    chance: float
    """The score of whoever remembers nothing."""
    symbols: int
    """Different symbols of the input; 0 where it is values."""
    channels: int = 0
    """Values at each time; 0 where the input is symbols."""
    answers: int
    """Different answers; 0 where the answer is a value."""
    claims: ClassVar[list[Claim]]
    quick: ClassVar[dict[str, Any]] = {}
    """Settings for a small version, which two cores can train."""

    class Config(settings.Config):
        pass

    def __init__(self, config: Config):
        self.config = config

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        """Fresh examples; training and validation draw alike, a test may be harder."""

    def examples(self, split: str, number: int, rows: int, seed: int = 1) -> SyntheticExamples:
        """Batch `number` of a split: the same for the same arguments, and no two alike."""
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        return self.draw(np.random.default_rng([seed, SPLITS.index(split), number]), rows, split == "test")

    def progress(self, score: float) -> float:
        """The share of the way from chance, 0, to perfect, 1."""
        perfect = 1.0 if self.measure == "accuracy" else 0.0
        return (score - self.chance) / (perfect - self.chance)

    def is_solved(self, score: float) -> bool:
        return self.progress(score) >= self.progress(self.solved)

    def show(self, score: float) -> str:
        """A score as people write it."""
        return f"{100 * score:.3g} %" if self.measure == "accuracy" else f"{score:.3g}"

    def expected(self, scores: Mapping[str, float]) -> list[Check]:
        """The published claims about the families that have a score, and whether these scores bear them out."""
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


def distinct(rng: np.random.Generator, rows: int, among: int, count: int) -> np.ndarray:
    """In each row, `count` different numbers below `among`, in random order."""
    return rng.random((rows, among)).argsort(axis=1)[:, :count]
