"""Counting language models: n-grams in sorted arrays, smoothed, with the same step form as any other model."""

from elman.models.ngram.arpa import read_arpa, write_arpa
from elman.models.ngram.model import NGram, NGramConfig

__all__ = ["NGram", "NGramConfig", "read_arpa", "write_arpa"]
