"""The learning rate as a function of the step: nothing to remember, so nothing to lose on resume."""

import math

from elman.training.config import TrainingConfig

RATE = 2e-3  # where nothing else is known


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """Rate of update number `step` (from 0) of `total_steps`; divisions by `plateau` come on top."""
    peak, warmup = config.learning_rate or RATE, config.warmup_steps or 0
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.schedule != "cosine":
        return peak
    done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    share = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + math.cos(math.pi * done))
    return peak * share
