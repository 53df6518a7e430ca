"""Fit of a tokenizer to texts: unknown tokens, tokens per word and per byte."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from elman.tokenizers.base import Tokenizer, checked


@dataclass(frozen=True)
class UnknownReport:
    tokens: int
    words: int  # separated by whitespace
    bytes: int
    unknowns: int  # `<unk>` tokens that are not literally in the text
    most_frequent: tuple[tuple[str, int], ...]  # unknown words (or characters) with their counts

    @property
    def unknown_rate(self) -> float:
        return self.unknowns / max(self.tokens, 1)

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / max(self.words, 1)

    @property
    def tokens_per_byte(self) -> float:
        return self.tokens / max(self.bytes, 1)

    def describe(self) -> list[str]:
        lines = [f"{self.tokens} tokens: {self.tokens_per_word:.3g} per word, {self.tokens_per_byte:.3g} per byte"]
        if self.unknowns:
            examples = ", ".join(f"{text!r} ({count})" for text, count in self.most_frequent)
            lines.append(f"{self.unknowns} unknown ({self.unknown_rate:.2%}), most often {examples}")
        return lines


def report(tokenizer: Tokenizer, texts: Iterable[str], most: int = 10) -> UnknownReport:
    tokens = words = size = 0
    unknowns: Counter[str] = Counter()
    for text in texts:
        tokens += len(tokenizer.encode(text))
        words += len(text.split())
        size += len(checked(text))
        unknowns.update(tokenizer.unknowns(text))
    ranked = sorted(unknowns.items(), key=lambda item: (-item[1], item[0]))
    return UnknownReport(tokens, words, size, unknowns.total(), tuple(ranked[:most]))
