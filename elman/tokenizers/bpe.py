"""Byte-level byte pair encoding (BPE; Gage, 1994; Sennrich et al., 2016): no unknown tokens."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import models, trainers

from elman import config as settings
from elman.tokenizers.base import EOS, TOKENIZERS, Ids, checked
from elman.tokenizers.byte import LETTERS, Byte


@TOKENIZERS.register("bpe")
class BPE(Byte):
    """Subwords, learned by merging the most frequent pairs of bytes."""

    class Config(settings.Config):
        vocab_size: int = Field(8000, ge=257)
        """Vocabulary size, including `<eos>` and the 256 bytes."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str] = ()) -> Self:
        library = cls.pipeline(models.BPE(), words=True)
        trainer = trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            min_frequency=2,  # a pair seen once is not merged
            special_tokens=[EOS],
            initial_alphabet=list(LETTERS.values()),
            show_progress=False,
        )
        library.train_from_iterator((checked(text).decode() for text in texts), trainer)
        return cls(config, cls.pipeline(library.model, words=True))

    def encode(self, text: str) -> Ids:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        for text in texts:
            checked(text)
        return [_ids(encoding) for encoding in self.library.encode_batch_fast(texts, add_special_tokens=False)]


def _ids(encoding: hf.Encoding) -> Ids:
    return np.array(encoding.ids, dtype=np.int32)
