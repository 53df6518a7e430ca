"""From a recipe to what a model trains on: corpus, tokenizer, token stores, batches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elman.batches import Documents, Lanes, Stream, TokenStore
from elman.corpus import Corpus, open_corpus
from elman.errors import DataError
from elman.models import MODELS, prediction_of
from elman.pipeline.recipe import Recipe
from elman.runs import atomic_write
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer


@dataclass
class Prepared:
    """What the data has become: ids in memory-mapped files, and how they got there."""

    corpus: Corpus
    tokenizer: Tokenizer
    stores: dict[str, TokenStore] = field(default_factory=dict)

    def repairs(self) -> list[str]:
        """What was mended while reading."""
        return self.corpus.repairs.describe()

    def training_batches(self, recipe: Recipe) -> Stream | Documents:
        training, store = recipe.training, self.stores["train"]
        if not self.corpus.carry:
            return Documents(store, training.batch_size, training.sequence_length, recipe.seed)
        fit = max(1, store.facts.tokens // training.sequence_length)  # a short text fills fewer lanes
        lanes = min(training.batch_size, fit)
        return Stream(store, lanes, training.sequence_length, recipe.seed, jitter=training.jitter)

    def evaluation_batches(self, split: str, recipe: Recipe, quick: bool = False) -> tuple[Lanes | Documents, str]:
        """Every token of a split once, and a sentence on the context it has. `quick` trades context for speed."""
        store, settings = self.stores[split], recipe.evaluation
        masked = prediction_of(MODELS[recipe.model.type]) == "masked"  # type: ignore[attr-defined]
        length = recipe.training.sequence_length if masked else settings.sequence_length
        if not self.corpus.carry:
            batches = Documents(store, settings.batch_size, length, recipe.seed, shuffle=False)
            cut = (
                f", in pieces of at most {length} tokens with both sides in sight" if masked else ", from a fresh state"
            )
            return batches, f"each {self.corpus.unit} on its own{cut}"
        if masked:
            lanes = max(1, min(settings.batch_size, store.facts.tokens // length))  # changes speed only
            return Lanes(store, lanes, length), f"pieces of {length} tokens, each on its own, both sides in sight"
        lanes = settings.lanes
        if quick:
            longest = store.facts.tokens // (8 * recipe.training.sequence_length)
            lanes = max(1, min(recipe.training.batch_size, longest))
        pieces = "" if lanes == 1 else f", cut into {lanes} lanes that each start afresh"
        return Lanes(store, lanes, settings.sequence_length), f"one stream, state carried over{pieces}"


def corpus_of(recipe: Recipe) -> Corpus:
    return open_corpus(recipe.data, recipe.tokenizer.type)  # type: ignore[attr-defined]


def prepare(recipe: Recipe, folder: Path) -> Prepared:
    """Train the tokenizer and fill the stores under `folder`, or take those that are there."""
    corpus = corpus_of(recipe)
    prepared = Prepared(corpus, _tokenizer(recipe, corpus, folder / "tokenizer.json"))
    for split in corpus.splits():
        prepared.stores[split] = _store(corpus, split, prepared.tokenizer, folder / "data")
    if not prepared.stores["train"].facts.tokens:
        raise DataError("there is no training text", file=", ".join(corpus.sources("train")))
    return prepared


def texts(corpus: Corpus, split: str) -> Iterator[str]:
    return (document.text for document in corpus.documents(split))  # type: ignore[arg-type]


def _tokenizer(recipe: Recipe, corpus: Corpus, path: Path) -> Tokenizer:
    if path.exists():
        return load_tokenizer(path)
    tokenizer = train_tokenizer(recipe.tokenizer.plain(), texts(corpus, "train"))
    with TemporaryDirectory() as aside:
        tokenizer.save(Path(aside) / path.name)
        atomic_write(path, (Path(aside) / path.name).read_bytes())
    return tokenizer


def _store(corpus: Corpus, split: Any, tokenizer: Tokenizer, folder: Path) -> TokenStore:
    fingerprint = (
        f"{corpus.fingerprint(split)}:{sha256(json.dumps(tokenizer.vocabulary, sort_keys=True).encode()).hexdigest()}"
    )
    try:
        store = TokenStore.open(folder, split)
    except DataError:  # not there, or not whole
        return TokenStore.build(corpus.documents(split), tokenizer, folder, split, fingerprint)
    if store.fingerprint != fingerprint:
        raise changed(folder.parent)
    return store


def changed(run: Path) -> DataError:
    return DataError("the data has changed since the run began", file=run, remedy="put it back, or give another --run")
