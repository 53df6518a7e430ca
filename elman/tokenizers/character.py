"""Characters: one token per Unicode code point that the training text holds."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import decoders, models

from elman import config as settings
from elman.tokenizers.base import EOS, TOKENIZERS, UNK, UNK_ID, Ids, Tokenizer, by_frequency, checked


@TOKENIZERS.register("character")
class Character(Tokenizer):
    """One token per character; a character never seen in training is unknown."""

    lossless = False
    unk_id = UNK_ID

    class Config(settings.Config):
        min_frequency: int = Field(1, ge=1)
        """Characters seen less often become `<unk>`."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        vocabulary = by_frequency(counts, config.min_frequency)
        checked("".join(vocabulary))
        library = hf.Tokenizer(models.BPE(vocabulary, [], unk_token=UNK))  # pairs are never joined: characters stay
        library.decoder = decoders.Fuse()
        return cls(config, library)

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        known = {ord(token): id for token, id in self.vocabulary.items() if token not in (EOS, UNK)}
        self._table = np.full(
            max(known, default=0) + 2, UNK_ID, dtype=np.int32
        )  # the last entry: all code points above
        self._table[list(known)] = list(known.values())

    def encode(self, text: str) -> Ids:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._table[np.minimum(points, len(self._table) - 1)]

    def unknowns(self, text: str) -> list[str]:
        return [character for character in text if character not in self.vocabulary]
