"""Beginning with what another run has learnt: its tokenizers, its word vectors, its layers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from elman.config import read_yaml
from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.runs import Run
from elman.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

BODY = ("embedding.", "stack.", "encoder.", "decoder.")
PARALLEL = {"attention": "two-way-attention", **{name: name for name in ("cross-attention", "feedforward", "swiglu")}}
SHAPE = (
    "pattern", "num_layers", "hidden_size", "embedding_size", "embedding_scale", "residual", "norm", "norm_type",
    "norm_epsilon", "positions", "max_positions", "embedding_norm",
)  # fmt: skip


def starting_tokenizer(recipe: "Recipe") -> Tokenizer | None:
    """That of the run to start from, if there is one: its word vectors mean nothing with another."""
    return load_tokenizer(Run.open(recipe.start_from).tokenizer) if recipe.start_from else None


def body_settings(place: str, task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that give a model the same body as the run at `place`; `given` are those that were asked for."""
    stored, kind = read_yaml(Run.open(place).config), given.get("type", "")
    if task == "translate":
        if stored.get("task") != task:
            raise ConfigError(f"start_from: {place} is no model that translates")
        return parallel_settings(stored["model"]) if kind == "mask-predict" else stored["model"]
    if stored.get("task", "language-model") not in ("language-model", "masked") or not isinstance(
        stored["model"], dict
    ):
        raise ConfigError(f"start_from: {place} is no language model; pretrain one with elman train --data TEXT")
    body = {key: stored["model"][key] for key in SHAPE if key in stored["model"]}
    layers = [name for entry in body["pattern"] for name in entry]
    if kind in LAYERS and "pattern" not in given and layers != [kind]:
        raise ConfigError(f"start_from: the layers of {place} are {', '.join(layers)}, not {kind}; leave model to it")
    if task == "tag":  # what is read of characters would make the first layer wider
        return {**body, "embedding_size": body["embedding_size"] or body["hidden_size"], "characters": None}
    return body


def parallel_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """Of an encoder-decoder, for one that fills all places at once: what looks back shall look to both sides."""
    if model["type"] == "mask-predict":
        return dict(model)
    pattern = [next(iter(entry.items())) for entry in model["decoder"]["pattern"]]
    strange = [name for name, _ in pattern if name not in PARALLEL]
    if strange or model["decoder"]["context"] or model["decoder"]["attention"]:
        what = f"its decoder has {strange[0]}" if strange else "its decoder is told of the source by its state"
        raise ConfigError(f"start_from: {what}; only a Transformer's weights fit a model that writes all words at once")
    both_ways = [
        {PARALLEL[name]: {key: value for key, value in settings.items() if (name, key) != ("attention", "context")}}
        for name, settings in pattern
    ]
    return {**model, "type": "mask-predict", "decoder": {**model["decoder"], "pattern": both_ways}}


def start_from(model: Any, place: str | Path, words: list[str] | None = None) -> str:
    """Copy what fits of a run's body into a model; says what was taken. `words` are rows of its own word vectors."""
    run = Run.open(place)
    shelf = run.shelf
    if shelf.empty:
        raise ConfigError(f"start_from: {place} has no checkpoint yet; train it first")
    stored = shelf.load(training=False).weights
    own = model.state_dict()
    taken, missed = 0, []
    with torch.no_grad():
        for name, value in own.items():
            if not name.startswith(BODY):
                continue
            given = stored.get(name)
            count = value.numel()
            if name.endswith("embedding.weight") and given is not None:
                given, count = _rows(given, value, words, run)
            if given is not None and given.shape == value.shape:
                value.copy_(given)
                taken += count
            else:
                missed.append(name)
    if not taken:
        raise ConfigError(f"start_from: nothing of {place} fits this model; leave model.pattern and sizes to it")
    rest = f", all but {', '.join(missed[:3])}{', …' if len(missed) > 3 else ''}" if missed else ""
    return f"begins with {taken:,} numbers of {place}{rest}"


def _rows(given: torch.Tensor, value: torch.Tensor, words: list[str] | None, run: Run) -> tuple[torch.Tensor, int]:
    """Rows that mean the same, and how many numbers they have; of a mask, which only one of the vocabularies may have,
    nothing is taken."""
    width = value.shape[1]
    if given.shape[1] != width:
        return given, 0
    if words is None:
        return torch.cat([given[: len(value)], value[len(given) :]]), min(len(given), len(value)) * width
    known = load_tokenizer(run.tokenizer).vocabulary
    first = len(value) - len(words)
    rows, shared = value.clone(), [word for word in words if word in known]
    for place, word in enumerate(words, start=first):
        if word in known:
            rows[place] = given[known[word]]
    return rows, len(shared) * width
