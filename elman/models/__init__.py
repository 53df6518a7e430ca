"""Models: stacks of layers with something to predict."""

from elman.models.base import MODELS, SequenceModel
from elman.models.language_model import LanguageModel
from elman.models.ngram import NGram
from elman.models.stack import Stack, StackConfig

__all__ = ["MODELS", "LanguageModel", "NGram", "SequenceModel", "Stack", "StackConfig"]
