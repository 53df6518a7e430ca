"""Learning rates: schedules, and the rate and warm-up that the layers of a model suggest where the recipe sets none.

Schedules are pure functions of the step: no state to save or restore.
"""

import math
from typing import Any

from torch import nn

from elman.cells import Cell
from elman.layers import SequenceLayer
from elman.training.config import TrainingConfig

DEFAULT_LEARNING_RATE = 2e-3
SHORT = 1000  # updates: fewer take a recurrent model further at a higher rate
SHORT_LEARNING_RATE = 1e-2
STEPS_PER_WARMUP_STEP = 10  # a warm-up takes at most a tenth of all steps


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """Learning rate of update number `step` (from 0) of `total_steps`, before divisions by `plateau`."""
    peak, warmup = config.learning_rate or DEFAULT_LEARNING_RATE, config.warmup_steps or 0
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.schedule != "cosine":
        return peak
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    fraction = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))
    return peak * fraction


def with_suggested_rate(config: TrainingConfig, model: nn.Module, total_steps: int) -> TrainingConfig:
    """The settings with both filled in; layers suggest rates for adam and adamw only, not for sgd."""
    classes = () if config.optimizer == "sgd" else (Cell, SequenceLayer)
    parts: list[Any] = [part for part in model.modules() if isinstance(part, classes) and part.suggested_rate]
    rates = [
        part.suggested_rate.rate / (part.hidden_size if isinstance(part, Cell) else part.output_size) for part in parts
    ]
    highest = SHORT_LEARNING_RATE if total_steps < SHORT and rates and _is_recurrent(model) else DEFAULT_LEARNING_RATE
    rate = float(f"{min([highest, *rates]):.2g}")
    warmup = min(max((part.suggested_rate.warmup for part in parts), default=0), total_steps // STEPS_PER_WARMUP_STEP)
    suggested = {"learning_rate": rate, "warmup_steps": warmup}
    return config.model_copy(update={key: value for key, value in suggested.items() if getattr(config, key) is None})


def _is_recurrent(model: nn.Module) -> bool:
    """Whether every layer is a cell run over time."""
    layers = [part for part in model.modules() if isinstance(part, SequenceLayer)]
    return all(any(isinstance(part, Cell) for part in layer.modules()) for layer in layers)


def suggested_rate_notes(requested: TrainingConfig, used: TrainingConfig) -> list[str]:
    """A note about suggested values that differ from the defaults."""
    other = requested.learning_rate is None and used.learning_rate not in (None, DEFAULT_LEARNING_RATE)
    warms_up = requested.warmup_steps is None and used.warmup_steps
    if not (other or warms_up):
        return []
    warmup = f" after {used.warmup_steps} steps of warm-up" if warms_up else ""
    return [f"learning rate {used.learning_rate:g}{warmup}, as suits the model"]
