"""A race as one typed tree: who runs, on what, with how much of everything, and how often."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from elman.config import Config, read_yaml

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
    """Everything that decides a race."""

    entrants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Who runs: names of families, or names of your own with settings of a model; none takes the task's usual field."""
    parameters: str | int = "auto"
    """What all are made equally large to; counted models have no size. auto leaves room beside the word vectors, which
    grow with the vocabulary; 0 leaves every entrant as it is given."""
    tokens: str | int = 0
    """Budget of training: so many tokens for each; texts or pairs where a task has these."""
    flops: str | int | float = 0
    """Budget of training: so many floating point operations for each, like 2e12."""
    minutes: float = Field(0.0, ge=0)
    """Budget of training: so much time for each, foretold by the speed of its trials."""
    seeds: int = Field(3, ge=1)
    """Times that each is trained, from other random numbers; no winner is named from one."""
    trials: int = Field(3, ge=1)
    """Learning rates that each entrant tries before the race."""
    extra_trials: int = Field(1, ge=0)
    """Further rates for an entrant whose best so far is the lowest or highest it tried, one step beyond each."""
    trial_share: float = Field(0.2, gt=0, le=1)
    """Length of a trial, as a share of the training."""
    rate_ratio: float = Field(3.0, gt=1)
    """How far apart the learning rates are that are tried, around the recipe's."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Data, tokenizer, training: all that a recipe says but the model; what stands in `model` holds for all."""

    @field_validator("entrants", mode="before")
    @classmethod
    def _by_name(cls, entrants: Any) -> Any:
        if isinstance(entrants, str):
            entrants = [name.strip() for name in entrants.split(",") if name.strip()]
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
    """A race on the data of one run, trained as that is: all but the model, and what was promised of it."""
    rest = {key: value for key, value in settings.items() if key not in ("model", "goals", "name", "parameters")}
    size = {"parameters": settings["parameters"]} if settings.get("parameters") else {}
    return {**size, "recipe": rest}
