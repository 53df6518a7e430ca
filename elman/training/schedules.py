"""The learning rate as a function of the step: nothing to remember, so nothing to lose on resume."""

import math

from elman.training.config import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """Rate of update number `step` (from 0) of `total_steps`; divisions by `plateau` come on top."""
    warmup = config.warmup_steps
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    if config.schedule != "cosine":
        return config.learning_rate
    done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    share = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * share
