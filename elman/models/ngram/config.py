"""Settings of an n-gram model."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from elman.config import Config

Smoothing = Literal["maximum-likelihood", "add-k", "witten-bell", "absolute", "kneser-ney", "modified-kneser-ney"]


class NGramConfig(Config):
    """Order, smoothing and pruning."""

    type: Literal["ngram"] = "ngram"
    """Model type: n-gram."""
    order: int = Field(5, ge=1)
    """Order n: the next token depends on the n - 1 tokens before it; 1: unigram model."""
    smoothing: Smoothing = "modified-kneser-ney"
    """Smoothing. With maximum-likelihood, unseen n-grams have probability zero and infinite loss."""
    add_k: float = Field(1.0, gt=0, allow_inf_nan=False)
    """add-k: pseudo-count of every n-gram, seen or not."""
    discount: float | None = Field(None, gt=0, le=1)
    """absolute and kneser-ney: discount of every count; null: estimated for each order."""
    prune: list[int] = Field(default_factory=lambda: [1])
    """Minimum count of n-grams to keep, for orders 1, 2, …; the last applies to all higher orders: [1, 1, 2]."""

    @field_validator("prune")
    @classmethod
    def _rising(cls, prune: list[int]) -> list[int]:
        if not prune or prune[0] != 1 or prune != sorted(prune):
            raise ValueError(
                "must start with 1 and not decrease, like [1, 1, 2]; for rare words use tokenizer.min_frequency"
            )
        return prune

    @model_validator(mode="after")
    def _one_discount(self) -> "NGramConfig":
        if self.discount is not None and self.smoothing not in ("absolute", "kneser-ney"):
            raise ValueError(f"discount applies to smoothing absolute or kneser-ney, not {self.smoothing}")
        return self

    def min_count(self, length: int) -> int:
        """Minimum count of n-grams of this length."""
        return self.prune[min(length, len(self.prune)) - 1]
