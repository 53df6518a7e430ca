"""What only a trained model tells: its score on each document, by frequency and by length."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elman.comparison.plan import Job
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.ops.state import take_rows
from elman.pipeline.recipe import Recipe
from elman.pipeline.tasks import Prepared
from elman.pipeline.tasks.base import Judged
from elman.pipeline.tasks.examples import ExampleTask
from elman.pipeline.tasks.language import LanguageModelling
from elman.pipeline.trained_model import load
from elman.runs import atomic_write

FREQUENCIES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 10**9)  # how often a word stood in the training text

LENGTHS = 5  # classes of about as many examples each

Numbers = NDArray[np.float64]
Classes = list[dict[str, Any]]  # from, to, how many, and the mean of something


class Units(NamedTuple):
    """What a score is a sum of: values and weights of documents, or of pieces of a long text."""

    values: Numbers
    weights: Numbers


def units_of(job: Job, prepared: Prepared, split: str) -> tuple[Units, dict[str, Classes]]:
    """Of a trained job, kept beside it; and the same by how frequent words are, or how long examples."""
    kept, classes = job.folder / "units.npy", job.folder / "classes.json"
    if kept.exists() and classes.exists():
        return Units(*np.load(kept)), json.loads(classes.read_text())
    trained = load(job.folder)
    if isinstance(trained.task, LanguageModelling):
        units, found = _likelihoods(trained.model, prepared, trained.recipe, split)
    else:
        judged = trained.task.judge(trained.model, prepared, trained.recipe, split)
        units, found = Units(judged.values, judged.weights), _shares(judged, prepared, split)
    _write_array(kept, np.stack(units))
    atomic_write(classes, json.dumps(found).encode())
    return units, found


def _shares(judged: Judged, prepared: Prepared, split: str) -> dict[str, Classes]:
    """What is right by length; and where single words are judged, by how often they stood in the training data."""
    task, store = prepared.task, prepared.stores[split]
    assert isinstance(task, ExampleTask)
    lengths = store.lengths(task.by[0])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTHS + 1)[:-1], method="higher"))
    found = {"by_length": _classes(lengths, edges, judged.values, judged.weights, "accuracy")}
    if judged.positions is not None:
        seen = Counter(_words(prepared, "train"))
        times = np.array([seen[word] for word in _words(prepared, split)])
        ones = np.ones(len(times))
        found["by_frequency"] = _classes(times, np.array(FREQUENCIES), judged.positions, ones, "accuracy")
    return found


def _words(prepared: Prepared, split: str) -> Iterator[str]:
    """As they are written: rare ones have no number of their own."""
    task: Any = prepared.task
    return (word for line, _ in task.questions(prepared.corpus, split) for word in line["words"])


def _classes(sizes: NDArray[Any], edges: NDArray[Any], values: Numbers, weights: Numbers, name: str) -> Classes:
    """Means over those whose size lies between two edges; the last class is open."""
    bins = np.searchsorted(edges, sizes, side="right") - 1
    sums, totals = (np.bincount(bins, part, minlength=len(edges)) for part in (values, weights))
    tops = [*(int(edge) - 1 for edge in edges[1:]), int(max(sizes.max(initial=0), edges[-1]))]
    return [
        {"from": int(edges[place]), "to": tops[place], "tokens": int(total), name: float(sums[place] / total)}
        for place, total in enumerate(totals)
        if total
    ]


def _likelihoods(model: Any, prepared: Prepared, recipe: Recipe, split: str) -> tuple[Units, dict[str, Classes]]:
    task: Any = prepared.task
    batches, _ = task.evaluation_batches(prepared, split, recipe)
    seen = np.bincount(prepared.stores["train"].tokens, minlength=task.tokenizer.vocab_size)
    times, nats = list[NDArray[Any]](), list[NDArray[Any]]()
    rows: list[torch.Tensor] = []
    device, state = device_of(model), None
    for batch in batches.epoch(0):
        here = batch.to(device)
        with inference_mode(model):
            state = model.initial_state(len(batch.inputs)) if batch.fresh else take_rows(state, slice(0, batch.size))
            losses, state = model.losses(here.inputs, here.targets, state, here.lengths)
        losses, real = losses.cpu().double(), batch.mask().cpu()
        losses = torch.where(real, losses, 0.0)
        rows.append(torch.stack([losses.sum(1), real.sum(1).double()]))
        times.append(seen[batch.targets[real].numpy()])
        nats.append(losses[real].numpy())
    every, ones = np.concatenate(times), np.ones(sum(map(len, times)))
    found = {"by_frequency": _classes(every, np.array(FREQUENCIES), np.concatenate(nats), ones, "loss")}
    values, weights = torch.cat(rows, dim=1).numpy()
    return Units(values, weights), found


def _write_array(path: Path, values: Numbers) -> None:
    from io import BytesIO

    memory = BytesIO()
    np.save(memory, values, allow_pickle=False)
    atomic_write(path, memory.getvalue())
