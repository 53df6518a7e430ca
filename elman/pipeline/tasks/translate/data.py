"""Pairs of texts: tokenizers of both sides, and models built for them."""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from elman.corpus import Corpus, PairCorpus, Repairs
from elman.models import TRANSLATORS
from elman.pipeline.tasks.base import Models
from elman.pipeline.tasks.examples import ExampleData, chunks, max_tokens
from elman.pipeline.tasks.files import save_tokenizer
from elman.pipeline.tasks.position_checks import learned_positions
from elman.pipeline.tasks.settings import Settings
from elman.runs import Run
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

SAMPLED = 1000  # texts that decide on a tokenizer, where none is named
LONG = "pair left out: longer than data.max_tokens"


class TranslateData(ExampleData):
    unit, by = "pairs", ("source", "target")

    def __init__(self, source: Tokenizer, target: Tokenizer, max_tokens: int = 0):
        self.source, self.target, self.max_tokens = source, target, max_tokens

    @classmethod
    def corpus(cls, recipe: "Recipe") -> PairCorpus:
        return PairCorpus(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        assert isinstance(corpus, PairCorpus)
        if recipe.start_from:
            return cls.load(Run.open(recipe.start_from).folder, recipe)
        config: Any = recipe.tokenizer

        def texts(side: str) -> Iterator[str]:
            for pair in corpus.pairs("train"):
                yield pair.text if side == "source" else pair.target

        def settings(side: str) -> Settings:
            chosen = getattr(config, side).plain()
            return {"type": suggest_tokenizer(islice(texts(side), SAMPLED))} if chosen["type"] == "auto" else chosen

        if config.shared:
            both = (text for side in ("source", "target") for text in texts(side))
            one = train_tokenizer(settings("target"), both)
            return cls(one, one, max_tokens(recipe))
        source, target = (train_tokenizer(settings(side), texts(side)) for side in ("source", "target"))
        return cls(source, target, max_tokens(recipe))

    def save(self, folder: Path) -> None:
        save_tokenizer(self.source, folder / "source.json")
        save_tokenizer(self.target, folder / "target.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "source.json"), load_tokenizer(folder / "target.json"), max_tokens(recipe))

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return (folder / "source.json").exists() and (folder / "target.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        """Ids of both sides, targets with their end. A pair that is too long is left out of training, and counted."""
        assert isinstance(corpus, PairCorpus)
        end = np.array([self.target.eos_id])
        for some in chunks(corpus.pairs(split)):
            sources = self.source.encode_batch([pair.text for pair in some])
            targets = self.target.encode_batch([pair.target for pair in some])
            for pair, source, target in zip(some, sources, targets, strict=True):
                if self.max_tokens and split == "train" and max(len(source), len(target)) > self.max_tokens:
                    repairs.add(LONG, pair.source, pair.line)
                else:
                    yield {"source": source, "target": np.concatenate([target, end])}

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        assert isinstance(corpus, PairCorpus)
        return ((pair.text, [pair.target.strip()]) for pair in corpus.pairs(split))

    def answer_parts(self, answer: Settings) -> list[str]:
        return [str(answer["target"]).strip()]

    def fingerprint(self) -> str:
        facts = [self.source.vocabulary, self.target.vocabulary, self.max_tokens]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def facts(self) -> Settings:
        sides = {"source": self.source, "target": self.target}
        names = {side: f"{one.name}, {one.vocab_size:,}" for side, one in sides.items()}
        return {"vocabulary": self.target.vocab_size, "tokenizers": names}

    def learned_positions(self, model: Any) -> dict[str, int | None]:
        return {"source": learned_positions(model, "encoder"), "target": learned_positions(model, "decoder")}

    def loss_field(self, recipe: "Recipe") -> str:
        return "target"


class TranslateModels(Models):
    data: TranslateData

    def build(self, config: Any) -> Any:
        source, target = self.data.source, self.data.target
        return TRANSLATORS[config.type](config, source.vocab_size, target.vocab_size, target.eos_id)


def suggest_tokenizer(texts: Iterable[str]) -> str:
    """Characters for texts of one word; words for single signs apart, as phones are written; else subwords."""
    counts = [text.split() for text in texts]
    if sum(len(words) <= 1 for words in counts) * 2 > len(counts):
        return "character"
    words = [word for text in counts for word in text]
    return "word" if sum(map(len, words)) < 2 * len(words) else "bpe"
