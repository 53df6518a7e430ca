"""Learning rate and warm-up that suit a model, where a recipe leaves them open."""

from typing import Any

from torch import nn

from elman.cells import Cell
from elman.layers import SequenceLayer
from elman.training.config import TrainingConfig
from elman.training.schedules import RATE

SHARE = 10  # a warm-up takes at most one step in so many


def settled(config: TrainingConfig, model: nn.Module, total_steps: int) -> TrainingConfig:
    """With both; rates of sgd are of another kind, and not known."""
    kinds = () if config.optimizer == "sgd" else (Cell, SequenceLayer)
    parts: list[Any] = [part for part in model.modules() if isinstance(part, kinds) and part.pace]
    rates = [part.pace.rate / (part.hidden_size if isinstance(part, Cell) else part.output_size) for part in parts]
    rate = float(f"{min([RATE, *rates]):.2g}")
    warmup = min(max((part.pace.warmup for part in parts), default=0), total_steps // SHARE)
    found = {"learning_rate": rate, "warmup_steps": warmup}
    return config.model_copy(update={key: value for key, value in found.items() if getattr(config, key) is None})


def told(asked: TrainingConfig, taken: TrainingConfig) -> list[str]:
    """A note for who has left it open, where it is not the usual."""
    slower = asked.learning_rate is None and taken.learning_rate not in (None, RATE)  # counting knows no rate
    rising = asked.warmup_steps is None and taken.warmup_steps
    if not (slower or rising):
        return []
    warmup = f" after {taken.warmup_steps} steps of warm-up" if rising else ""
    return [f"learning rate {taken.learning_rate:g}{warmup}, as suits the model"]
