"""Runs of every task and family that train in a moment, for servers under attack and their tests."""

from pathlib import Path
from typing import Any

import elman

LABELLED = "label\ttext\n" + "a\tthis is x\nb\tthat was y\n" * 12
SEVERAL = "label\ttext\na,b\tthis is x\n\tnothing\nb\tthat was y\n" * 8
RATED = "label\ttext\n" + "1.5\tthis is x\n4\tthat was y\n" * 12
TAGGED = "the\tD\ncat\tN\n\na\tD\ndog\tN\n\n" * 12
PAIRS = "".join(f"{word}\t{word.upper()}\n" for word in ("ab", "ba", "abc", "cab", "bca") * 8)
STORY = "the cat sat on the mat and saw a big dog\n" * 40
HYBRID = {"pattern": ["mamba", {"attention": {"num_heads": 2}}], "hidden_size": 8}
SIDES = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}}
TEXT = "language-model"
RECIPES: dict[str, tuple[str, str, dict[str, Any]]] = {  # suffix of the data, the data, and settings
    "classify": ("tsv", LABELLED, {}),
    "several": ("tsv", SEVERAL, {"task": "classify", "data": {"separator": ","}}),
    "regress": ("tsv", RATED, {}),
    "tag": ("conll", TAGGED, {}),
    "translate": ("tsv", PAIRS, {"model": SIDES, "search": {"beam_size": 2, "max_tokens": 6}}),
    "masked": ("txt", STORY, {"tokenizer": "word"}),
    "language-model": ("txt", STORY, {"model": {"type": "gru", "hidden_size": 8}}),
    "lstm": ("txt", STORY, {"task": TEXT, "model": {"type": "lstm", "hidden_size": 8}}),
    "n-gram": ("txt", STORY, {"task": TEXT, "model": {"type": "ngram", "order": 3}}),
    "attention": ("txt", STORY, {"task": TEXT, "model": {"type": "transformer", "hidden_size": 8, "num_heads": 2}}),
    "words": ("txt", STORY, {"task": TEXT, "tokenizer": "word", "model": {"type": "mamba", "hidden_size": 8}}),
    "hybrid": ("txt", STORY, {"task": TEXT, "model": HYBRID}),
}


def train(name: str, folder: Path, steps: int = 3) -> Path:
    """A run folder of that name."""
    suffix, text, more = RECIPES[name]
    data = folder / f"{name}.{suffix}"
    data.write_text(text)
    recipe = {"task": name, "model": {"hidden_size": 8}, "device": "cpu", **more}
    recipe["data"] = {"train": str(data), "valid": str(data), **more.get("data", {})}
    recipe["training"] = {"max_steps": steps, "batch_size": 4, "log_every": 1, "learning_rate": 0.01}
    run = folder / name
    elman.train(recipe, run=run, progress=False)
    return run


def runs_in(folder: Path, names: list[str] | None = None) -> list[Path]:
    """Runs of these names, trained where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    return [folder / name if (folder / name).exists() else train(name, folder) for name in names or RECIPES]
