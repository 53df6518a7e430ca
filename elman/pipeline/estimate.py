"""Estimates memory and time of a recipe: reads the data, builds the model, times a few steps."""

import tempfile
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from elman.models.stack import count_parameters
from elman.pipeline.recipe import Recipe
from elman.pipeline.session import Session
from elman.training import World

TIMED = 5  # steps; the first is left out, since it includes start-up


def estimate(recipe: Recipe) -> dict[str, Any]:
    """Sizes, unknown words, memory and time; writes to a temporary folder only."""
    training = recipe.training.model_copy(update={"log_every": 1, "max_steps": 0})
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        session = Session(recipe.model_copy(update={"training": training}), Path(place) / "run", False, World(), stack)
        trainer, known = session.trainer, _known(session)
        if getattr(session.model, "fits_by_counting", False):
            return known  # one pass over the data, with no steps to time
        planned = min(trainer.total_steps, recipe.training.max_steps or trainer.total_steps)
        trainer.validate = None
        moments = [time.monotonic() for report in islice(iter(trainer), TIMED + 1) if report.kind in ("start", "step")]
        timed = moments[1:] if len(moments) > 2 else moments
        seconds = (timed[-1] - timed[0]) / max(1, len(timed) - 1)
        parameters = count_parameters(session.model)
        per_weight = {"sgd": 8, "adam": 16, "adamw": 16}[recipe.training.optimizer]
        return {
            **known,
            "parameters": parameters,
            "steps": planned,
            **_per_step(session),
            "megabytes_for_weights_and_optimizer": parameters * per_weight / 2**20,
            "seconds_per_step": seconds,
            "minutes_in_all_at_most": planned * seconds / 60,
        }


def _known(session: Session) -> dict[str, Any]:
    """What needs no timing."""
    about, task, stores = session.describe(), session.prepared.task, session.prepared.stores
    laws = [f"{name} keeps all laws of layers" for name in session.lawful]
    return {
        "vocabulary": about["vocabulary"],
        "device": about["device"],
        "splits": {split: task.describe(store) for split, store in stores.items()},
        "classes": {split: counts for split, store in stores.items() if (counts := task.class_counts(store))},
        "layers": about["layers"],
        "notes": [*session.notes, *laws, *(f"repaired: {repair}" for repair in about["repairs"])],
    }


def _per_step(session: Session) -> dict[str, float]:
    """Size of a batch; for batches of a fixed number of tokens also the memory of their activations, about a dozen
    numbers per unit and position of gated layers."""
    trainer, training, unit = session.trainer, session.recipe.training, session.prepared.task.unit
    if unit != "tokens":
        return {f"{unit}_per_step": training.batch_size}
    carried = sum(part.numel() * 4 for name, part in trainer.tensors().items() if ".carried." in name)
    layers = session.model.stack.layers if hasattr(session.model, "stack") else []
    positions = training.batch_size * training.sequence_length // training.micro_batches
    activations = positions * sum(block.layer.output_size for block in layers) * 12 * 4
    return {
        "tokens_per_step": trainer.batches.batch_size * training.sequence_length,
        "megabytes_for_activations": (activations + carried) / 2**20,
    }
