"""The settings of a race: entrants, data, training budget, seeds and trials."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from elman.config import Config
from elman.untrusted import read_yaml

BETWEEN = re.compile(r",(?![^\[{]*[\]}])(?!\s*[\w.]+=)")  # models, not their settings: gru,lstm:forget_bias=3,bias=no

EMBEDDED: dict[str, Any] = {
    "data": {"language": {"type": "agreement", "train_documents": 30000, "valid_documents": 500}},
    "training": {"batch_size": 16, "learning_rate": 4e-3},  # a race has few steps, so they are large
    "generation": {"max_tokens": 30},
}
DEMO: dict[str, Any] = {
    "entrants": ["ngram", "window", "rnn", "lstm", "attention"],
    "parameters": "40k",
    "tokens": "200k",
    "trials": 2,
    "extra_trials": 0,
    "recipe": {
        "data": {
            "language": {
                "type": "agreement",
                "words_per_class": 6,
                "max_phrases": 3,
                "train_documents": 16000,
                "valid_documents": 300,
                "test_documents": 1000,
            }
        },
        "training": {"batch_size": 16, "learning_rate": 5e-3},
        "generation": {"max_tokens": 30},
    },
}


class Race(Config):
    """Settings of a race."""

    entrants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Models to compare: names of families, or your own names with settings of a model and of their training
    (training.optimizer: sgd); none takes those usual for the task."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that every entrant takes all these values of, each combination as an entrant of its own:
    {model.dropout: [0, 0.3]}."""
    parameters: str | int = "auto"
    """Number of parameters that every entrant is sized to, apart from n-grams; auto depends on the vocabulary, as word
    vectors do; 0 keeps each entrant's own size."""
    tokens: str | int = 0
    """Training budget of each entrant in tokens, or in the texts or pairs of its task."""
    flops: str | int | float = 0
    """Training budget of each entrant in floating point operations, like 2e12."""
    minutes: float = Field(0.0, ge=0)
    """Training budget of each entrant in minutes, as estimated from the speed of its trials."""
    seeds: int = Field(3, ge=1)
    """Number of trainings of each entrant, with different random seeds; no winner is named from one."""
    trials: int = Field(3, ge=1)
    """Learning rates that each entrant tries first, in short trainings."""
    extra_trials: int = Field(1, ge=0)
    """Further learning rates for an entrant whose best is the lowest or highest tried, each one step beyond."""
    trial_share: float = Field(0.2, gt=0, le=1)
    """Length of a trial, as a share of the training budget."""
    rate_ratio: float = Field(3.0, gt=1)
    """Ratio between neighbouring learning rates of the search, which is centred on the recipe's."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Settings of the recipe that all entrants share: data, tokenizer, training; those in `model` go to every model."""

    @field_validator("entrants", mode="before")
    @classmethod
    def _by_name(cls, entrants: Any) -> Any:
        if isinstance(entrants, str):
            entrants = [name.strip() for name in BETWEEN.split(entrants) if name.strip()]
        if not isinstance(entrants, list):
            return entrants
        named: dict[str, Any] = {}
        for entry in entrants:
            named |= dict(entry) if isinstance(entry, Mapping) else {str(entry): {}}
        return named

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in ("tokens", "flops", "minutes") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"a race has one budget, but {' and '.join(given)} are given")
        return self


def is_race(path: Path) -> bool:
    """Whether a file is a race, and not the recipe of one run."""
    return bool({"entrants", "recipe", "trials", "seeds"} & read_yaml(path).keys())


def of_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A race with the data and training settings of one recipe; its model and goals are left out."""
    rest = {key: value for key, value in settings.items() if key not in ("model", "goals", "name", "parameters")}
    size = {"parameters": settings["parameters"]} if settings.get("parameters") else {}
    return {**size, "recipe": rest}
