"""The settings of a counting model."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from elman.config import Config

Smoothing = Literal["maximum-likelihood", "add-k", "witten-bell", "absolute", "kneser-ney", "modified-kneser-ney"]


class NGramConfig(Config):
    """How long the n-grams are, and what unseen ones get."""

    type: Literal["ngram"] = "ngram"
    """Kind of model: counted n-grams."""
    order: int = Field(5, ge=1)
    """Length n of the longest n-grams: the next token depends on the n-1 before it; 1 makes tokens independent."""
    smoothing: Smoothing = "modified-kneser-ney"
    """How unseen n-grams get their share. With maximum-likelihood they have none: text with one has infinite loss."""
    add_k: float = Field(1.0, gt=0, allow_inf_nan=False)
    """For add-k: what is added to the count of every n-gram, seen or not."""
    discount: float | None = Field(None, gt=0, le=1)
    """For absolute and kneser-ney: what is taken from every count; null estimates it for each order."""
    prune: list[int] = Field(default_factory=lambda: [1])
    """Least count of an n-gram to be kept, for orders 1, 2, …; the last holds for all longer ones: [1, 1, 2]."""

    @field_validator("prune")
    @classmethod
    def _rising(cls, prune: list[int]) -> list[int]:
        if not prune or prune[0] != 1 or prune != sorted(prune):
            raise ValueError(
                "begins with 1 and never falls, like [1, 1, 2]; for rare words use tokenizer.min_frequency"
            )
        return prune

    @model_validator(mode="after")
    def _one_discount(self) -> "NGramConfig":
        if self.discount is not None and self.smoothing not in ("absolute", "kneser-ney"):
            raise ValueError(f"discount is for smoothing absolute or kneser-ney, not {self.smoothing}")
        return self

    def least(self, length: int) -> int:
        """Count from which on an n-gram of this length is kept."""
        return self.prune[min(length, len(self.prune)) - 1]
