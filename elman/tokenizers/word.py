"""Words: what stands between white space, as data sets that come cut into tokens expect."""

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

SPACE = "".join(character for character in map(chr, range(0x3001)) if character.isspace())  # where str.split cuts


class _Lookup(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return UNK_ID


class _Pieces(NamedTuple):
    ids: tuple[int, ...]
    unknowns: tuple[str, ...]


@TOKENIZERS.register("word")
class Word(Tokenizer):
    """One token per word; words outside the vocabulary are unknown; decoded words stand one space apart."""

    lossless = False
    unk_id = UNK_ID
    separator = b" "

    class Config(Config):
        vocab_size: int = Field(0, ge=0)
        """Most frequent words to keep, `<eos>` and `<unk>` included; 0 keeps all."""
        min_frequency: int = Field(1, ge=1)
        """Words seen less often become `<unk>`."""
        lowercase: bool = False
        """Whether case is thrown away."""
        split: Literal["whitespace", "punctuation"] = "whitespace"
        """Where words end: at white space only, or also around each punctuation mark and symbol."""

        @field_validator("vocab_size")
        @classmethod
        def room_for_words(cls, value: int) -> int:
            if value in (1, 2):
                raise ValueError(f"is 0 (all words) or at least 3, as {EOS} and {UNK} take two")
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
        self._whole = config.split == "whitespace" and not config.lowercase  # a chunk is a word as it stands
        self._lookup = _Lookup({word: id for word, id in self.vocabulary.items() if word != EOS})
        self._pieces = lru_cache(2**17)(self._pieces_of)  # words repeat: the library sees most of them once

    def encode(self, text: str) -> Ids:
        chunks = text.split()
        if self._whole:
            return np.array(list(map(self._lookup.__getitem__, chunks)), dtype=np.int32)
        return np.array(list(chain.from_iterable(self._pieces(chunk).ids for chunk in chunks)), dtype=np.int32)

    def unknowns(self, text: str) -> list[str]:
        chunks = text.split()
        if self._whole:
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
    never_a_boundary = normalizers.Replace(Regex(f"(?<![^{SPACE}]){EOS}(?![^{SPACE}])"), UNK)
    lower = [normalizers.Lowercase()] if config.lowercase else []
    library.normalizer = normalizers.Sequence([*lower, never_a_boundary])
    marks = (
        [pre_tokenizers.Split(Regex(rf"{UNK}|[\p{{P}}\p{{S}}]"), "isolated")] if config.split == "punctuation" else []
    )
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(f"[{SPACE}]+"), "removed"), *marks])
    return library
