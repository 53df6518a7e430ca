"""Matched training budgets: how many steps of one entrant a budget of tokens, FLOPs or minutes pays for.

FLOPs are counted while a model trains on a batch of its data. A multiplication counts as two operations, with the
addition that nearly always follows: those of matrix products as torch's own counter has them, and elementwise ones, of
which a scan consists.
"""

from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

from elman.comparison.config import Race
from elman.errors import ConfigError
from elman.inspection.cost import count
from elman.pipeline.recipe import Recipe
from elman.pipeline.sizes import parse_count
from elman.pipeline.tasks import Task

SAMPLED = 64  # batches sampled to estimate units per batch
VALIDATIONS = 12  # points of a learning curve
LOGS = 40
WARMUP = 0.05
EPOCHS = 3  # of a task without a budget of its own
PER_PRODUCT = 2  # a multiplication and an addition


class Budget(NamedTuple):
    """The training budget of every entrant."""

    kind: str  # tokens, flops or minutes
    amount: float

    def steps(self, per_step: float, flops: float, speed: float | None) -> int:
        """Training steps within the budget, given units per step, FLOPs per unit and units per second."""
        if self.kind == "minutes":
            if speed is None:
                raise ConfigError("a budget of minutes needs a trial, which measures the speed")
            units = speed * 60 * self.amount
        else:
            units = self.amount / flops if self.kind == "flops" else self.amount
        return max(1, round(units / per_step))


def budget_of(race: Race, task: type[Task], epoch_units: float) -> Budget:
    """The requested budget, or the default of the task: a number of units, or of epochs."""
    if race.minutes:
        return Budget("minutes", race.minutes)
    if race.flops:
        return Budget("flops", _number(race.flops))
    if race.tokens:
        return Budget("tokens", parse_count(race.tokens))
    return Budget("tokens", task.race_tokens or EPOCHS * epoch_units)


def _number(text: str | int | float) -> float:
    try:
        return float(text)
    except ValueError:
        return float(parse_count(str(text)))


def training_flops(model: Any, batch: Any) -> float:
    """Of forward and backward, per unit of the batch (a token, a text, a word), padding included.

    In double precision, where no fused kernel hides its products.
    """
    twin = deepcopy(model).double().train()

    def step() -> None:
        loss, _ = twin.batch_loss(batch, None)
        loss.backward()

    return PER_PRODUCT * count(step) / batch.real


def per_step(batches: Any) -> float:
    """Mean number of units in a batch."""
    sizes = [batch.real for batch in islice(batches.epoch(0), SAMPLED)]
    return sum(sizes) / len(sizes)


def with_steps(recipe: Recipe, steps: int, an_epoch: int, given: set[str], validations: int = VALIDATIONS) -> Recipe:
    """The recipe with that many steps, a cosine schedule and a dozen validations, except for settings in `given`."""
    changes: dict[str, Any] = {
        "schedule": "cosine",
        "warmup_steps": round(WARMUP * steps),
        "evaluate_every": max(1, steps // validations),
        "log_every": max(1, steps // LOGS),
    }
    changes = {key: value for key, value in changes.items() if key not in given}
    changes |= {"evaluate_every": steps} if validations == 1 else {}  # a trial is scored at its end only
    changes |= {"max_steps": steps, "max_epochs": steps // max(1, an_epoch) + 2}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)})
