"""N-gram language models: counts in sorted arrays, smoothing, and the step form of any other model."""

from elman.models.ngram.arpa import read_arpa, write_arpa
from elman.models.ngram.model import NGram, NGramConfig

__all__ = ["NGram", "NGramConfig", "read_arpa", "write_arpa"]
