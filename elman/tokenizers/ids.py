"""Numbers for text: "12 7 99" stands for itself, for models that came without a tokenizer."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import models, pre_tokenizers

from elman import config as settings
from elman.errors import DataError
from elman.tokenizers.base import TOKENIZERS, Ids, Tokenizer
from elman.tokenizers.imported import comes_with_its_model


@TOKENIZERS.register("ids")
class Numbers(Tokenizer):
    """The ids themselves, written as numbers with spaces between. Made by `elman import` alone."""

    lossless = False
    separator = b" "

    class Config(settings.Config):
        vocab_size: int = Field(1, ge=1)
        """Ids that the model knows."""
        eos_id: int = Field(0, ge=0)
        """The id that ends a text."""
        start_id: int | None = Field(None, ge=0)
        """The id that a text begins with; null takes eos_id."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> NoReturn:
        raise comes_with_its_model(cls.name)

    @classmethod
    def make(cls, **given: Any) -> "Numbers":
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
        whole = self._texts == [str(id) for id in range(self.config.vocab_size)]
        return whole and max(self.eos_id, self.start_id) < self.vocab_size

    def _number(self, word: str) -> int:
        id = self.vocabulary.get(word)
        if id is None:
            raise DataError(
                f"{word[:40]!r} is no id from 0 to {self.vocab_size - 1}",
                remedy="the model came without a tokenizer.json, so its texts are ids: 12 7 99",
            )
        if id == self.eos_id:
            raise DataError(f"{word} ends texts and cannot be in one", remedy="leave it out; each text gets its own")
        return id
