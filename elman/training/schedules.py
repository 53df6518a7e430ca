"""Learning rate schedules as pure functions of the step: no state to save or restore."""

import math

from elman.training.config import TrainingConfig

DEFAULT_LEARNING_RATE = 2e-3


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
