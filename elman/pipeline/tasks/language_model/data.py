"""Text as a stream of tokens: the tokenizer, token stores, and batches for training and evaluation."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from elman.batches import Documents, ParallelStreams, Stream, TokenStore
from elman.corpus.stored_corpus import StoredCorpus
from elman.errors import DataError
from elman.models import MODELS, frame_of, is_masked
from elman.pipeline.tasks.base import LITTLE, PreparedData, Task, data_changed
from elman.pipeline.tasks.position_checks import count_longer, learned_positions, length_warning
from elman.pipeline.tasks.settings import Settings
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.corpus import Corpus
    from elman.pipeline.recipe import Recipe


FEW_TOKENS = 1000


class StreamTask(Task):
    """A task on streams of tokens."""

    generates_text = True
    unit, saved_files = "tokens", ("tokenizer.json",)

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    @classmethod
    def corpus(cls, recipe: "Recipe") -> "Corpus":
        from elman.corpus import open_corpus

        return open_corpus(recipe.data, recipe.tokenizer.type)  # type: ignore[attr-defined]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: "Corpus") -> Self:
        def texts() -> Iterator[str]:
            return (document.text for document in corpus.documents("train"))

        tokenizer = train_tokenizer(recipe.tokenizer.plain(), texts())
        tokenizer.fit_surface(texts())
        return cls(tokenizer)

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "tokenizer.json"))

    def fingerprint(self) -> str:
        return sha256(json.dumps(self.tokenizer.vocabulary, sort_keys=True).encode()).hexdigest()

    def store(self, corpus: "Corpus", split: Any, folder: Path) -> TokenStore:
        fingerprint = f"{corpus.fingerprint(split)}:{self.fingerprint()}"
        try:
            store = TokenStore.open(folder, split)
        except DataError:  # not there, or damaged
            if isinstance(corpus, StoredCorpus):
                raise
            store = TokenStore.build(corpus.documents(split), self.tokenizer, folder, split, fingerprint)
        if store.fingerprint != fingerprint:
            raise data_changed(folder.parent)
        if store.tokens.max(initial=0) >= self.tokenizer.vocab_size:
            raise DataError("a token is not in the vocabulary", file=folder / f"{split}.tokens")
        if split == "train" and not store.facts.tokens:
            raise DataError("there is no training text", file=", ".join(corpus.sources("train")))
        return store

    def opening(self, data: Path) -> list[int]:
        from elman.pipeline.tasks.language_model.opening import stored_opening

        return stored_opening(self.tokenizer, data)

    def size(self, store: TokenStore) -> int:
        return store.facts.tokens

    def describe(self, store: TokenStore) -> Settings:
        facts = store.facts
        rate = facts.unknowns / facts.tokens if facts.tokens else 0.0
        return {"documents": facts.documents, "tokens": facts.tokens, "bytes": facts.bytes, "unknown_rate": rate}

    def describe_vocabulary(self) -> Settings:
        return {"vocabulary": self.tokenizer.vocab_size}

    def training_batches(self, prepared: PreparedData, recipe: "Recipe") -> Stream | Documents:
        training, store = recipe.training, prepared.stores["train"]
        if not prepared.corpus.carry:
            return Documents(store, training.batch_size, training.sequence_length, recipe.seed)
        fit = max(1, store.facts.tokens // training.sequence_length)  # a short text fills fewer rows
        rows = min(training.batch_size, fit)
        return Stream(store, rows, training.sequence_length, recipe.seed, jitter=training.jitter)

    def notes(self, batches: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        training, tokens = recipe.training, prepared.stores["train"].facts.tokens
        notes = [f"only {tokens:,} tokens to train on: {LITTLE}"] if tokens < FEW_TOKENS else []
        if batches.batch_size < training.batch_size:
            asked = f"{training.batch_size} parallel streams of {training.sequence_length} steps"
            notes.append(f"{tokens:,} tokens do not fill {asked}: training with {batches.batch_size}")
        return notes

    def length_warnings(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        """For masked models, which read chunks; positions of a causal model wrap around in long texts."""
        positions = learned_positions(model) if is_masked(model) else None
        notes: list[str] = []
        for split, store in prepared.stores.items():
            sizes = self._pieces(store, recipe.training.sequence_length, prepared.corpus.carry)
            what = f"of {len(sizes):,} pieces of {split} are"
            notes += length_warning(count_longer(sizes + 2 * (frame_of(model) is not None), positions), what, positions)
        return notes

    @staticmethod
    def _pieces(store: TokenStore, length: int, carry: bool) -> np.ndarray:
        """The length of each independent chunk."""
        sizes = np.array([store.facts.tokens]) if carry else np.diff(store.starts)
        ends = sizes % length
        return np.concatenate([np.full(int((sizes // length).sum()), length), ends[ends > 0]])

    def evaluation_batches(
        self, prepared: PreparedData, split: str, recipe: "Recipe", quick: bool = False
    ) -> tuple[ParallelStreams | Documents, str]:
        """Every token of a split once, and a sentence on the context it has. `quick` trades context for speed."""
        store, settings, corpus = prepared.stores[split], recipe.evaluation, prepared.corpus
        masked = is_masked(MODELS[recipe.model.type])  # type: ignore[attr-defined]
        length = recipe.training.sequence_length if masked else settings.sequence_length
        if not corpus.carry:
            batches = Documents(store, settings.batch_size, length, recipe.seed, shuffle=False)
            pieces = f"in pieces of at most {length} tokens with context on both sides"
            return batches, f"each {corpus.unit} on its own, {pieces if masked else 'from a fresh state'}"
        if masked:
            lanes = max(1, min(settings.batch_size, store.facts.tokens // length))  # changes speed only
            context = f"pieces of {length} tokens, each on its own, with context on both sides"
            return ParallelStreams(store, lanes, length), context
        lanes = settings.lanes
        if quick:
            longest = store.facts.tokens // (8 * recipe.training.sequence_length)
            lanes = max(1, min(recipe.training.batch_size, longest))
        pieces = "" if lanes == 1 else f", split into {lanes} parallel streams with fresh states"
        return ParallelStreams(store, lanes, settings.sequence_length), f"one stream, state carried over{pieces}"
