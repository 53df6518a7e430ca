"""Tokenizers that are trained on texts: bytes, byte pair encoding (BPE), characters, whitespace-separated words."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import tokenizers as hf
from pydantic import Field, field_validator
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from elman import config as settings
from elman.errors import DataError
from elman.tokenizers.base import EOS, TOKENIZERS, UNK, UNK_ID, Ids, Tokenizer, checked
from elman.tokenizers.library_file import library_errors
from elman.tokenizers.surface import Surface, Way, borders, mark

_visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_hidden = [byte for byte in range(256) if byte not in _visible]
LETTERS = {byte: chr(byte) for byte in _visible} | {byte: chr(256 + place) for place, byte in enumerate(_hidden)}
"""The library's visible character for each byte."""
BYTES = {letter: byte for byte, letter in LETTERS.items()}
_NORMALIZERS = {"none": None, "nfc": normalizers.NFC(), "nfd": normalizers.NFD()}
SPACE = "".join(character for character in map(chr, range(0x3001)) if character.isspace())  # as in str.split


@TOKENIZERS.register("byte")
class Byte(Tokenizer):
    """One token per byte of UTF-8."""

    lossless = True

    @classmethod
    def train(cls, config: Any, texts: Iterable[str] = ()) -> Self:
        vocabulary = {EOS: 0} | {LETTERS[byte]: byte + 1 for byte in range(256)}
        return cls(config, cls.pipeline(models.BPE(vocabulary, []), words=False))

    @staticmethod
    def pipeline(model: models.Model, words: bool) -> hf.Tokenizer:
        """`<eos>` is in the vocabulary but not an added token, because the library would match it in text."""
        library = hf.Tokenizer(model)
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
        library.decoder = decoders.ByteLevel()
        return library

    def encode(self, text: str) -> Ids:
        return np.frombuffer(checked(text), dtype=np.uint8).astype(np.int32) + 1

    def spell(self, token: str) -> bytes:
        return bytes(BYTES[letter] for letter in token)


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

    encode_batch = Tokenizer.library_encode


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
        self.rewrites = library.normalizer is not None
        self.surface = Surface() if self.rewrites else None

    def encode(self, text: str) -> Ids:
        text = self.restored(text)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._table[np.minimum(points, len(self._table) - 1)]

    def restored(self, text: str) -> str:
        return _normalized(text, self.library.normalizer)

    def unknowns(self, text: str) -> list[str]:
        return [character for character in self.restored(text) if character not in self.vocabulary]


def _normalized(text: str, normalizer: Any) -> str:
    if normalizer is None or text.isascii():
        return text
    checked(text)
    return normalizer.normalize_str(text)  # not Python's, whose Unicode version may differ


class _Pieces(NamedTuple):
    ids: tuple[int, ...]
    unknowns: tuple[str, ...]
    texts: tuple[str, ...]  # of known tokens, and unknown parts as they are
    marks: tuple[str, ...]


@TOKENIZERS.register("word")
class Word(Tokenizer):
    """One token per word; words outside the vocabulary are unknown; decoded words are separated by one space."""

    lossless = False
    unk_id = UNK_ID
    separator = b" "

    class Config(settings.Config):
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
        self._lookup = {word: id for word, id in self.vocabulary.items() if word != EOS}
        self._pieces = lru_cache(2**17)(self._pieces_of)  # caches repeated words
        self.surface, self.rewrites = Surface(), config.lowercase

    def encode(self, text: str) -> Ids:
        chunks = text.split()
        if self._plain:
            return np.array(list(map(self._lookup.get, chunks, repeat(UNK_ID))), dtype=np.int32)
        return np.array(list(chain.from_iterable(self._pieces(chunk).ids for chunk in chunks)), dtype=np.int32)

    def unknowns(self, text: str) -> list[str]:
        chunks = text.split()
        if self._plain:
            return [chunk for chunk in chunks if chunk not in self._lookup]
        return list(chain.from_iterable(self._pieces(chunk).unknowns for chunk in chunks))

    def restored(self, text: str) -> str:
        chunks = text.split()
        return " ".join("".join(self._pieces(chunk).texts) for chunk in chunks) if self.rewrites else " ".join(chunks)

    def ways(self, text: str) -> Counter[Way]:
        found, unknowns = super().ways(text), len(self.unknowns(text))
        literal = int((self.encode(text) == UNK_ID).sum()) - unknowns if UNK in text else 0
        found |= {Way("unknown", way): times for way, times in (("other", unknowns), ("literal", literal)) if times}
        if self.config.split == "punctuation":
            found |= borders(self._pieces(chunk).marks for chunk in text.split())
        return found

    def _pieces_of(self, chunk: str) -> _Pieces:
        checked(chunk)
        with library_errors():
            encoding = self.library.encode(chunk, add_special_tokens=False)
        parts = [(id, chunk[start:end]) for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)]
        if len(parts) == 1:  # of an escaped <eos>, the library tells the last character only
            parts = [(parts[0][0], chunk)]
        unknowns = tuple(part for id, part in parts if id == UNK_ID and part != UNK)
        texts = tuple(part if id == UNK_ID else self._texts[id] for id, part in parts)
        return _Pieces(tuple(encoding.ids), unknowns, texts, tuple(map(mark, texts)))


def by_frequency(counts: Counter[str], min_frequency: int, size: int = 0) -> dict[str, int]:
    """Ids after `<eos>` and `<unk>`, most frequent first, ties in text order; `size` 0: no limit."""
    kept = [item for item, count in counts.items() if count >= min_frequency and item not in (EOS, UNK)]
    if not kept:
        raise DataError(f"empty vocabulary: no item occurs at least {max(min_frequency, 1)} times")
    kept.sort(key=lambda item: (-counts[item], item))
    return {item: id for id, item in enumerate([EOS, UNK, *kept][: size or None])}


def _pipeline(config: Word.Config, vocabulary: dict[str, int]) -> hf.Tokenizer:
    library = hf.Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    escape_eos = normalizers.Replace(Regex(f"(?<![^{SPACE}]){EOS}(?![^{SPACE}])"), UNK)
    lower = [normalizers.Lowercase()] if config.lowercase else []
    library.normalizer = normalizers.Sequence([*lower, escape_eos])
    splits = [pre_tokenizers.Split(Regex(f"[{SPACE}]+"), "removed")]
    if config.split == "punctuation":
        splits.append(pre_tokenizers.Split(Regex(rf"{UNK}|[\p{{P}}\p{{S}}]"), "isolated"))
    library.pre_tokenizer = pre_tokenizers.Sequence(splits)
    return library
