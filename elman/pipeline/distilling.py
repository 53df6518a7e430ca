"""Sequence-level distillation (Kim and Rush, 2016): a teacher's own translations, for a student to learn from.

They are simpler than what people wrote: one way to say each thing. Models that write all words at once need that.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elman.corpus import PairCorpus
from elman.errors import ConfigError, RunError
from elman.pipeline.recipe import Recipe, read_recipe
from elman.pipeline.tasks.starting import parallel_settings
from elman.pipeline.tasks.translate import Translate
from elman.pipeline.trained import load
from elman.runs import atomic_write

Listener = Callable[[int, int], None]


def distill(teacher: str | Path, to: str | Path, device: str = "auto", listener: Listener | None = None) -> int:
    """Translate the teacher's training sources with its own search into a file of JSON lines; how many there are.

    `listener` hears how many are done, of how many.
    """
    trained = load(teacher, device)
    if not isinstance(trained.task, Translate):
        raise ConfigError(f"{teacher}: its task is {trained.task.name}, and only translations are distilled")
    corpus = trained.task.corpus(trained.recipe)
    assert isinstance(corpus, PairCorpus)
    sources = [pair.text for pair in corpus.pairs("train")]
    lines: list[str] = []
    for done, answer in enumerate(trained.predict(sources), start=1):
        if answer["target"].strip():
            pair = {"source": answer["source"], "target": answer["target"]}
            lines.append(json.dumps(pair, ensure_ascii=False) + "\n")
        if listener:
            listener(done, len(sources))
    if not lines:
        raise RunError(f"{teacher}: wrote nothing but empty translations; train it further first")
    atomic_write(Path(to), "".join(lines).encode())
    return len(lines)


def student_recipe(teacher: str | Path, data: str | Path, overrides: dict[str, Any]) -> Recipe:
    """The teacher's recipe with the distilled pairs for training data, and whatever is said differently.

    Where the teacher is a Transformer, the student has its shape, and begins with its weights.
    """
    stored = load(teacher, "cpu").recipe.plain()
    model = stored["model"]
    stored["data"] |= {"train": str(data), "train_target": None, "columns": None}
    for key in ("name", "parameters", "goals", "model"):
        stored.pop(key)
    given = {"model": "mask-predict", **overrides}
    if given["model"] == "mask-predict" and _is_transformer(model):
        given = {"start_from": str(teacher), **given}
    return read_recipe(stored, given)


def _is_transformer(model: dict[str, Any]) -> bool:
    try:
        parallel_settings(model)
    except ConfigError:
        return False
    return True
