"""Character tokenizer: one token per Unicode code point of the training text."""

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
    """One token per character; characters not seen in training are unknown."""

    lossless = False
    unk_id = UNK_ID

    class Config(settings.Config):
        min_frequency: int = Field(1, ge=1)
        """Rarer characters become `<unk>`."""
        normalize: Literal["none", "nfc", "nfd"] = "none"
        """Unicode normalization: none, composed (nfc), or decomposed (nfd: é as e and its accent, a Korean syllable as
        its letters). Decoded text stays normalized."""

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(_normalized(text, _NORMALIZERS[config.normalize]))
        vocabulary = by_frequency(counts, config.min_frequency)
        checked("".join(vocabulary))
        library = hf.Tokenizer(models.BPE(vocabulary, [], unk_token=UNK))  # no merges: single characters
        library.decoder = decoders.Fuse()
        if normalizer := _NORMALIZERS[config.normalize]:
            library.normalizer = normalizer
        return cls(config, library)

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        known = {ord(token): id for token, id in self.vocabulary.items() if token not in (EOS, UNK)}
        self._table = np.full(max(known, default=0) + 2, UNK_ID, dtype=np.int32)  # last entry: all higher code points
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
    return normalizer.normalize_str(text)  # not Python's, whose Unicode version may differ
