"""Characters: one token per Unicode code point that the training text holds."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import decoders, models, normalizers

from elman import config as settings
from elman.tokenizers.base import EOS, TOKENIZERS, UNK, UNK_ID, Ids, Tokenizer, by_frequency, checked

_NORMALIZERS = {"none": None, "nfc": normalizers.NFC(), "nfd": normalizers.NFD()}


@TOKENIZERS.register("character")
class Character(Tokenizer):
    """One token per character; a character never seen in training is unknown."""

    lossless = False
    unk_id = UNK_ID

    class Config(settings.Config):
        min_frequency: int = Field(1, ge=1)
        """Characters seen less often become `<unk>`."""
        normalize: Literal["none", "nfc", "nfd"] = "none"
        """Take text as it is, with each letter and its marks as one character (nfc), or taken apart (nfd): é as e and
        its accent, a Korean syllable as its two or three letters. What is decoded stays so, canonically the same."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(_normalized(text, _NORMALIZERS[config.normalize]))
        vocabulary = by_frequency(counts, config.min_frequency)
        checked("".join(vocabulary))
        library = hf.Tokenizer(models.BPE(vocabulary, [], unk_token=UNK))  # pairs are never joined: characters stay
        library.decoder = decoders.Fuse()
        if normalizer := _NORMALIZERS[config.normalize]:
            library.normalizer = normalizer
        return cls(config, library)

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        known = {ord(token): id for token, id in self.vocabulary.items() if token not in (EOS, UNK)}
        self._table = np.full(
            max(known, default=0) + 2, UNK_ID, dtype=np.int32
        )  # the last entry: all code points above
        self._table[list(known)] = list(known.values())

    def encode(self, text: str) -> Ids:
        text = _normalized(text, self.library.normalizer)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._table[np.minimum(points, len(self._table) - 1)]

    def unknowns(self, text: str) -> list[str]:
        return [
            character for character in _normalized(text, self.library.normalizer) if character not in self.vocabulary
        ]


def _normalized(text: str, normalizer: Any) -> str:
    if normalizer is None or text.isascii():
        return text
    checked(text)
    return normalizer.normalize_str(text)  # not Python's: its tables may be of another version of Unicode
