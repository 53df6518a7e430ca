"""Numeric tokenizer: "12 7 99" are token ids, for models imported without a tokenizer."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import models, pre_tokenizers

from elman import config as settings
from elman.errors import DataError
from elman.tokenizers.base import TOKENIZERS, Ids, Tokenizer
from elman.tokenizers.imported import not_trainable


@TOKENIZERS.register("ids")
class IdTokenizer(Tokenizer):
    """Token ids as space-separated numbers. Created by `elman import` only."""

    lossless = False
    separator = b" "

    class Config(settings.Config):
        vocab_size: int = Field(1, ge=1)
        """Vocabulary size of the model."""
        eos_id: int = Field(0, ge=0)
        """Id of end-of-text."""
        start_id: int | None = Field(None, ge=0)
        """Id of start-of-text; null: eos_id."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> NoReturn:
        raise not_trainable(cls.name)

    @classmethod
    def make(cls, **given: Any) -> "IdTokenizer":
        config = cls.Config.make(given, where="tokenizer")
        library = hf.Tokenizer(models.WordLevel({str(id): id for id in range(config.vocab_size)}, unk_token="0"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return cls(config, library)

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        self.eos_id = config.eos_id

    @property
    def start_id(self) -> int:
        return self.eos_id if self.config.start_id is None else self.config.start_id

    def encode(self, text: str) -> Ids:
        return np.array([self._number(word) for word in text.split()], dtype=np.int32)

    def ordered(self) -> bool:
        sequential = self._texts == [str(id) for id in range(self.config.vocab_size)]
        return sequential and max(self.eos_id, self.start_id) < self.vocab_size

    def _number(self, word: str) -> int:
        id = self.vocabulary.get(word)
        if id is None:
            raise DataError(
                f"{word[:40]!r} is not an id from 0 to {self.vocab_size - 1}",
                remedy="the model was imported without a tokenizer.json, so texts are ids: 12 7 99",
            )
        if id == self.eos_id:
            raise DataError(f"{word} is the end-of-text id, which is added automatically", remedy="remove it")
        return id
