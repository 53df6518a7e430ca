"""Sequence-level distillation (Kim and Rush, 2016): a student trains on the translations of a teacher.

They have fewer alternative wordings than human translations, which non-autoregressive models need.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from elman.corpus import PairCorpus
from elman.errors import ConfigError, RunError
from elman.models.encoder_decoder.config import parallel_settings
from elman.pipeline.recipe import Recipe, read_recipe
from elman.pipeline.resume import CHOSEN
from elman.pipeline.tasks.files import save_json
from elman.pipeline.trained_model import TrainedModel, load
from elman.runs import Run, atomic_write
from elman.training.learning_rates import SHORT, with_suggested_rate
from elman.untrusted import read_json

Listener = Callable[[int, int], None]


def distill(teacher: str | Path, to: str | Path, device: str = "auto", listener: Listener | None = None) -> int:
    """Translate the teacher's training sources into a file of JSON lines; returns their number.

    `listener` is called with the number done and the total.
    """
    trained = load(teacher, device)
    corpus = _corpus(teacher, trained)
    sources = [pair.text for pair in corpus.pairs("train")]
    lines: list[str] = []
    for done, answer in enumerate(trained.predict(sources), start=1):
        if answer["target"].strip():
            pair = {"source": answer["source"], "target": answer["target"]}
            lines.append(json.dumps(pair, ensure_ascii=False) + "\n")
        if listener:
            listener(done, len(sources))
    if not lines:
        raise RunError(f"{teacher}: wrote only empty translations; train it further first")
    text = "".join(lines).encode()
    origin = _origin(teacher, trained, corpus) | {"count": len(lines), "sha256": sha256(text).hexdigest()}
    save_json(origin, origin_of(to))  # first, so that there is never a text without its origin
    atomic_write(Path(to), text)
    return len(lines)


def origin_of(to: str | Path) -> Path:
    """The file beside translations that records where they come from."""
    return Path(to).with_name(f"{Path(to).name}.origin.json")


def check_origin(teacher: str | Path, to: str | Path) -> int:
    """The number of translations, if this teacher in its present state wrote them; else an error names differences."""
    remedy = "remove it to have them written anew, give another file with --to, or train on it with elman train"
    try:
        origin = read_json(origin_of(to), follow_links=True)
        count = int(origin["count"])
    except (RunError, ValueError, KeyError, TypeError):
        why = f"{origin_of(to).name} beside it, which records their origin, cannot be read"
        raise RunError(f"{to}: not known to be the translations of {teacher}: {why}; {remedy}") from None
    trained = load(teacher, "cpu")
    now = _origin(teacher, trained, _corpus(teacher, trained)) | {"sha256": sha256(Path(to).read_bytes()).hexdigest()}
    if different := "; ".join(_differences(origin, now)):
        raise RunError(f"{to}: not what {teacher} writes now: {different}; {remedy}")
    return count


def _origin(teacher: str | Path, trained: TrainedModel, corpus: PairCorpus) -> dict[str, Any]:
    weights = Run.open(teacher).shelf.fingerprint()
    origin: dict[str, Any] = {"weights": weights, "step": trained.step, "data": corpus.fingerprint("train")}
    return origin | {"search": trained.recipe.search.plain()}


def _differences(origin: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if origin.get("sha256") != now["sha256"]:
        yield "the file was changed after it was written"
    if origin.get("weights") != now["weights"]:
        yield f"written by weights of step {origin.get('step')}, and the teacher has others now, of step {now['step']}"
    if origin.get("data") != now["data"]:
        yield "the teacher's training data has changed"
    before = origin.get("search") or {}
    for key, value in now["search"].items():
        if before.get(key) != value:
            yield f"search.{key} was {before.get(key)!r} and is {value!r}"


def _corpus(teacher: str | Path, trained: TrainedModel) -> PairCorpus:
    if not trained.task.searches:
        raise ConfigError(f"{teacher}: its task is {trained.task.name}, and only translations are distilled")
    corpus = trained.task.corpus(trained.recipe)
    assert isinstance(corpus, PairCorpus)
    return corpus


def student_recipe(teacher: str | Path, data: str | Path, overrides: dict[str, Any]) -> Recipe:
    """The teacher's recipe with the distilled pairs as training data, and overrides.

    The student of a Transformer has its shape and starts from its weights.
    """
    trained = load(teacher, "cpu")
    stored = trained.recipe.plain()
    stored["training"] |= _reopened_rate(trained)
    model = stored["model"]
    stored["data"] |= {"train": str(data), "train_target": None, "columns": None}
    for key in ("name", "parameters", "goals", "model"):
        stored.pop(key)
    given = {"model": "mask-predict", **overrides}
    if given["model"] == "mask-predict":
        with suppress(ConfigError):  # the teacher is no Transformer
            parallel_settings(model)
            given = {"start_from": str(teacher), **given}
    return read_recipe(stored, given)


def _reopened_rate(trained: TrainedModel) -> dict[str, Any]:
    """Of the learning rate and the warm-up, those that were chosen to suit the teacher: the student has its own."""
    training = trained.recipe.training
    opened = training.model_copy(update=dict.fromkeys(CHOSEN))
    suit = [with_suggested_rate(opened, trained.model, steps) for steps in (training.max_steps or 10**9, SHORT - 1)]
    return {key: None for key in CHOSEN if getattr(training, key) in [getattr(one, key) for one in suit]}
