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
        trainer = session.trainer
        facts = session.facts()
        if getattr(session.model, "fits_by_counting", False):
            return _known(session, facts)  # one pass over the data, with no steps to time
        planned = min(trainer.total_steps, recipe.training.max_steps or trainer.total_steps)
        trainer.validate = None
        moments = [time.monotonic() for report in islice(iter(trainer), TIMED + 1) if report.kind in ("start", "step")]
        seconds = (
            (moments[-1] - moments[1]) / max(1, len(moments) - 2) if len(moments) > 2 else moments[-1] - moments[0]
        )
        parameters = count_parameters(session.model)
        per_weight = {"sgd": 8, "adam": 16, "adamw": 16}[recipe.training.optimizer]
        return {
            **_known(session, facts),
            "parameters": parameters,
            "steps": planned,
            **_per_step(session),
            "megabytes_for_weights_and_optimizer": parameters * per_weight / 2**20,
            "seconds_per_step": seconds,
            "minutes_in_all_at_most": planned * seconds / 60,
        }


def _known(session: Session, facts: dict[str, Any]) -> dict[str, Any]:
    """Facts that need no timing."""
    return {
        "vocabulary": facts["vocabulary"],
        "device": facts["device"],
        "splits": {split: session.prepared.task.describe(store) for split, store in session.prepared.stores.items()},
        "layers": facts["layers"],
        "notes": [
            *session.notes,
            *(f"{name} keeps all laws of layers" for name in session.lawful),
            *(f"repaired: {repair}" for repair in facts["repairs"]),
        ],
    }


def _per_step(session: Session) -> dict[str, float]:
    """Size of a batch; for batches of a fixed number of tokens also the memory of their activations."""
    trainer, training = session.trainer, session.recipe.training
    if session.prepared.task.unit != "tokens":
        return {f"{session.prepared.task.unit}_per_step": training.batch_size}
    carried = sum(part.numel() * 4 for name, part in trainer.tensors().items() if ".carried." in name)
    return {
        "tokens_per_step": trainer.batches.batch_size * training.sequence_length,
        "megabytes_for_activations": (_activations(session, session.recipe) + carried) / 2**20,
    }


def _activations(session: Session, recipe: Recipe) -> int:
    """Bytes saved for one backward pass: about a dozen numbers per unit and position of gated layers."""
    widths = (
        sum(block.layer.output_size for block in session.model.stack.layers) if hasattr(session.model, "stack") else 0
    )
    positions = recipe.training.batch_size * recipe.training.sequence_length // recipe.training.micro_batches
    return positions * widths * 12 * 4
