"""Byte-level tokenizers, which encode any text: single bytes, and byte pair encoding (BPE)."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tokenizers as hf
from pydantic import Field
from tokenizers import decoders, models, pre_tokenizers, trainers

from elman import config as settings
from elman.tokenizers.base import EOS, TOKENIZERS, Ids, Tokenizer, checked

_visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_hidden = [byte for byte in range(256) if byte not in _visible]
LETTERS = {byte: chr(byte) for byte in _visible} | {byte: chr(256 + place) for place, byte in enumerate(_hidden)}
"""The library's visible character for each byte."""
BYTES = {letter: byte for byte, letter in LETTERS.items()}


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

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        for text in texts:
            checked(text)
        encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
