"""Warm start: a new model takes the tokenizer, the word vectors and the layers of another run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.runs import Run
from elman.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

BODY = ("embedding.", "stack.", "encoder.", "decoder.")
SHAPE = (
    "pattern", "num_layers", "hidden_size", "embedding_size", "embedding_scale", "residual", "norm", "norm_type",
    "norm_epsilon", "positions", "max_positions", "embedding_norm",
)  # fmt: skip


def starting_tokenizer(recipe: "Recipe") -> Tokenizer | None:
    """The tokenizer of the run to start from, if there is one: its word vectors mean nothing with another."""
    return load_tokenizer(Run.open(recipe.start_from).tokenizer) if recipe.start_from else None


def language_body(run: str, stored: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of a language model's stack, from its stored recipe; `asked` are the settings the user gave."""
    from elman.pipeline.tasks import DEFAULT, TASKS

    if not TASKS[stored.get("task", DEFAULT)].provides_body or not isinstance(stored["model"], dict):
        raise ConfigError(f"start_from: {run} is no language model; pretrain one with elman train --data TEXT")
    body = {key: stored["model"][key] for key in SHAPE if key in stored["model"]}
    layers, model = [name for entry in body["pattern"] for name in entry], asked.get("type", "")
    if model in LAYERS and "pattern" not in asked and layers != [model]:
        raise ConfigError(f"start_from: the layers of {run} are {', '.join(layers)}, not {model}; leave model to it")
    return body


def copy_weights(model: Any, run: str | Path, words: list[str] | None = None) -> str:
    """Copy the weights of a run's body that fit into a model; returns a note on what was copied. `words` are those of
    the model's own word vectors, where its vocabulary is not that of the run."""
    source = Run.open(run)
    if source.shelf.empty:
        raise ConfigError(f"start_from: {run} has no checkpoint yet; train it first")
    stored = source.load().weights
    copied, missed = 0, []
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not name.startswith(BODY):
                continue
            weight, count = stored.get(name), value.numel()
            if name.endswith("embedding.weight") and weight is not None:
                weight, count = _word_vectors(weight, value, words, source)
            if weight is not None and weight.shape == value.shape:
                value.copy_(weight)
                copied += count
            else:
                missed.append(name)
    if not copied:
        raise ConfigError(f"start_from: nothing of {run} fits this model; leave model.pattern and sizes to it")
    rest = f", all but {', '.join(missed[:3])}{', …' if len(missed) > 3 else ''}" if missed else ""
    return f"begins with {copied:,} numbers of {run}{rest}"


def _word_vectors(
    stored: torch.Tensor, value: torch.Tensor, words: list[str] | None, source: Run
) -> tuple[torch.Tensor, int]:
    """Rows of the same tokens, and how many numbers they have; the row of a mask, which only one of the vocabularies
    may have, is not copied."""
    width = value.shape[1]
    if stored.shape[1] != width:
        return stored, 0
    if words is None:
        return torch.cat([stored[: len(value)], value[len(stored) :]]), min(len(stored), len(value)) * width
    known = load_tokenizer(source.tokenizer).vocabulary
    first = len(value) - len(words)
    rows, shared = value.clone(), [word for word in words if word in known]
    for row, word in enumerate(words, start=first):
        if word in known:
            rows[row] = stored[known[word]]
    return rows, len(shared) * width
