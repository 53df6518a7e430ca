"""Word tokenizer: whitespace-separated words, as in pre-tokenized data sets."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import tokenizers as hf
from pydantic import Field, field_validator
from tokenizers import Regex, models, normalizers, pre_tokenizers

from elman.config import Config
from elman.tokenizers.base import EOS, TOKENIZERS, UNK, UNK_ID, Ids, Tokenizer, by_frequency, checked

SPACE = "".join(character for character in map(chr, range(0x3001)) if character.isspace())  # as in str.split


class _Lookup(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return UNK_ID


class _Pieces(NamedTuple):
    ids: tuple[int, ...]
    unknowns: tuple[str, ...]


@TOKENIZERS.register("word")
class Word(Tokenizer):
    """One token per word; words outside the vocabulary are unknown; decoded words are separated by one space."""

    lossless = False
    unk_id = UNK_ID
    separator = b" "

    class Config(Config):
        vocab_size: int = Field(0, ge=0)
        """Maximum vocabulary size, including `<eos>` and `<unk>`; 0: no limit."""
        min_frequency: int = Field(1, ge=1)
        """Rarer words become `<unk>`."""
        lowercase: bool = False
        """Lower-case all text."""
        split: Literal["whitespace", "punctuation"] = "whitespace"
        """Split at whitespace only, or also around each punctuation mark and symbol."""

        @field_validator("vocab_size")
        @classmethod
        def _not_too_small(cls, value: int) -> int:
            if value in (1, 2):
                raise ValueError(f"must be 0 (no limit) or at least 3, including {EOS} and {UNK}")
            return value

    @classmethod
    def train(cls, config: Any, texts: Iterable[str]) -> Self:
        chunks: Counter[str] = Counter()
        for text in texts:
            chunks.update(text.split())
        library = _pipeline(config, {EOS: 0, UNK: 1})
        counts: Counter[str] = Counter()
        for chunk, count in chunks.items():
            checked(chunk)
            for piece, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(chunk)):
                counts[piece] += count
        return cls(config, _pipeline(config, by_frequency(counts, config.min_frequency, config.vocab_size)))

    def __init__(self, config: Any, library: hf.Tokenizer):
        super().__init__(config, library)
        self._plain = config.split == "whitespace" and not config.lowercase  # every chunk is a word
        self._lookup = _Lookup({word: id for word, id in self.vocabulary.items() if word != EOS})
        self._pieces = lru_cache(2**17)(self._pieces_of)  # caches repeated words

    def encode(self, text: str) -> Ids:
        chunks = text.split()
        if self._plain:
            return np.array(list(map(self._lookup.__getitem__, chunks)), dtype=np.int32)
        return np.array(list(chain.from_iterable(self._pieces(chunk).ids for chunk in chunks)), dtype=np.int32)

    def unknowns(self, text: str) -> list[str]:
        chunks = text.split()
        if self._plain:
            return [chunk for chunk in chunks if chunk not in self._lookup]
        return list(chain.from_iterable(self._pieces(chunk).unknowns for chunk in chunks))

    def _pieces_of(self, chunk: str) -> _Pieces:
        checked(chunk)
        encoding = self.library.encode(chunk, add_special_tokens=False)
        sources = [
            chunk[start:end] for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True) if id == UNK_ID
        ]
        return _Pieces(tuple(encoding.ids), tuple(source for source in sources if source != UNK))


def _pipeline(config: Word.Config, vocabulary: dict[str, int]) -> hf.Tokenizer:
    library = hf.Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    escape_eos = normalizers.Replace(Regex(f"(?<![^{SPACE}]){EOS}(?![^{SPACE}])"), UNK)
    lower = [normalizers.Lowercase()] if config.lowercase else []
    library.normalizer = normalizers.Sequence([*lower, escape_eos])
    marks = (
        [pre_tokenizers.Split(Regex(rf"{UNK}|[\p{{P}}\p{{S}}]"), "isolated")] if config.split == "punctuation" else []
    )
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(f"[{SPACE}]+"), "removed"), *marks])
    return library
