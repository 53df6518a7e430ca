"""Encodes sentences for taggers: lower-cased word ids, and the characters of each word.

An example has word ids (`words`), the characters of all words in one row (`characters`), their number per word
(`word_lengths`), and optionally `tags`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from elman.config import Config, Facts
from elman.corpus.tagged_corpus import TaggedSentence
from elman.corpus.tags import TagSet

UNKNOWN = 0  # unknown word or character
EDGE = 1  # marks start and end of a word


class WordsConfig(Config):
    """Encoding of words for a tagger."""

    min_count: int = Field(2, ge=1)
    """Minimum count of a word in training to have its own embedding; rarer ones share that of the unknown word."""
    max_characters: int = Field(40, ge=2)
    """Maximum number of characters per word; of longer words, half from the start and half from the end."""


class StoredWords(Facts):
    """A word table as JSON types."""

    config: WordsConfig
    words: list[str]
    characters: list[str]

    def table(self) -> WordTable:
        return WordTable(self.config, self.words, self.characters)


class WordTable:
    """Ids of words and characters."""

    def __init__(self, config: WordsConfig, words: Iterable[str], characters: Iterable[str]):
        self.config, self.words, self.characters = config, list(words), list(characters)
        self._words = {word: number for number, word in enumerate(self.words, start=UNKNOWN + 1)}
        self._characters = {sign: number for number, sign in enumerate(self.characters, start=EDGE + 1)}

    @classmethod
    def of(cls, sentences: Iterable[TaggedSentence], config: WordsConfig | None = None) -> WordTable:
        """The table of the words in these sentences, most frequent first."""
        config = config or WordsConfig()
        counts: Counter[str] = Counter()
        signs: set[str] = set()
        for sentence in sentences:
            counts.update(word.lower() for word in sentence.words)
            signs.update(*sentence.words)
        words = [word for word, count in counts.items() if count >= config.min_count]
        return cls(config, sorted(words, key=lambda word: (-counts[word], word)), sorted(signs))

    @property
    def vocab_size(self) -> int:
        return len(self.words) + UNKNOWN + 1

    @property
    def character_count(self) -> int:
        return len(self.characters) + EDGE + 1

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {"config": self.config.plain(), "words": self.words, "characters": self.characters}

    def encode(self, sentence: TaggedSentence, tags: TagSet | None = None) -> dict[str, NDArray[np.int64]]:
        """One example, with tags if a tag set is given."""
        spelled = [self._spelled(word) for word in sentence.words]
        fields = {
            "words": [self._words.get(word.lower(), UNKNOWN) for word in sentence.words],
            "characters": [sign for word in spelled for sign in word],
            "word_lengths": [len(word) for word in spelled],
        }
        example = {name: np.array(numbers, dtype=np.int64) for name, numbers in fields.items()}
        return example if tags is None else {**example, "tags": tags.encode(sentence)}

    def knows(self, word: str) -> bool:
        return word.lower() in self._words

    def _spelled(self, word: str) -> list[int]:
        half = self.config.max_characters // 2
        seen = word if len(word) <= self.config.max_characters else word[:half] + word[-half:]
        return [EDGE, *(self._characters.get(sign, UNKNOWN) for sign in seen), EDGE]
