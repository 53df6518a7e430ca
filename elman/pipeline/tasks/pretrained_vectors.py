"""Pretrained word vectors: a new model begins with those of the file in its setting `vectors`.

The file is opened when a recipe is read, for its width, and once more before the first step. Afterwards the weights are
in the checkpoints: a run, also a resumed one, never opens what its config.yaml names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from elman.corpus.word_vectors import read_vectors, vector_width
from elman.errors import ConfigError
from elman.tokenizers import Tokenizer

SIDES = ("encoder", "decoder")
SETTINGS = ("vectors", "freeze_vectors", "normalize_vectors")
ROUNDING = 1e-5  # of a vector's size: smaller differences between vectors are none


class Vocabulary(NamedTuple):
    """The words whose vectors a part of a model has."""

    part: Any  # with `embedding` and `config`
    words: list[str]  # of the first rows of its table
    field: str = ""  # of the examples that have their ids; empty for a stream of tokens


def words_of_ids(tokenizer: Tokenizer) -> list[str]:
    words = [""] * tokenizer.vocab_size
    for word, number in tokenizer.vocabulary.items():
        words[number] = word
    return words


def with_vector_widths(model: Any) -> Any:
    """Model settings with embeddings as wide as the vectors of their file, where they say nothing else."""
    if not isinstance(model, Mapping):
        return model
    found = {side: with_vector_widths(model[side]) for side in SIDES if side in model}
    file = model.get("vectors")
    if isinstance(file, str) and file and not model.get("embedding_size"):
        found["embedding_size"] = vector_width(file)
    return {**model, **found}


def without_vectors(model: Mapping[str, Any]) -> dict[str, Any]:
    """Model settings that name no file: those of another run, whose weights come along."""
    sides = {side: without_vectors(model[side]) for side in SIDES if isinstance(model.get(side), Mapping)}
    return {**{key: value for key, value in model.items() if key not in SETTINGS}, **sides}


def known_widths(stored: Mapping[str, Any], prefix: str = "model.") -> dict[str, Any]:
    """The widths found before, as overrides: a resumed run does without the file."""
    sides = [(side, stored[side]) for side in SIDES if isinstance(stored.get(side), Mapping)]
    found = {key: value for side, part in sides for key, value in known_widths(part, f"{prefix}{side}.").items()}
    return {**found, f"{prefix}embedding_size": stored["embedding_size"]} if stored.get("vectors") else found


def use_vectors(task: Any, model: Any, settings: Mapping[str, Any], store: Any, new: bool) -> Iterator[str]:
    """Freezes what is to be kept, and fills the tables of a new model; notes say what was found."""
    if not known_widths(settings):
        return
    vocabularies: list[Vocabulary] = task.vocabularies(model)
    if not vocabularies:
        raise ConfigError(f"model.vectors: task {task.name} does not say which words its models know")
    for part, words, field in vocabularies:
        config, table = part.config, part.embedding.weight
        if config.freeze_vectors:
            table.requires_grad_(False)
        if config.vectors and new:
            ids = store.ragged[field][0] if field else store.tokens
            yield _filled(table.data, config, words, np.bincount(ids, minlength=len(words)))


def _filled(table: torch.Tensor, config: Any, words: list[str], counts: Any) -> str:
    """Vectors of the file; those of other words stay random, with the same spread."""
    file = config.vectors
    read = read_vectors(file, words)
    if read.values.shape[1] != table.shape[1]:
        found, asked = read.values.shape[1], table.shape[1]
        raise ConfigError(
            f"model.embedding_size: the vectors of {file} have {found} numbers, not {asked}; leave it out"
        )
    if not read.found.any():
        raise ConfigError(f"model.vectors: {file} has none of the {len(words):,} tokens; give it a tokenizer of words")
    known = torch.from_numpy(read.found)
    values = torch.from_numpy(read.values)[known]
    if config.normalize_vectors:
        values = _normalized(values, 1.0 if config.freeze_vectors else _spread(table))
    table.mul_(_spread(values) / _spread(table))
    table[: len(words)][known] = values
    total, exact = int(read.found.sum()), read.exact
    unknown = counts[: len(words)][~read.found].sum() / max(1, counts.sum())
    return (
        f"{total:,} of {len(words):,} words have vectors in {file}, {total - exact:,} of them in another case; "
        f"{unknown:.1%} of the training text has none"
    )


def _normalized(values: torch.Tensor, spread: float) -> torch.Tensor:
    """With mean 0 and this spread; as they are where all are the same."""
    centred = values.double() - values.double().mean(0)
    same = _spread(centred) <= ROUNDING * _spread(values)
    return values if same else (centred * (spread / _spread(centred))).to(values.dtype)


def _spread(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())
