"""Lab: who remembers how far."""

from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from elman.corpus.synthetic_tasks.base import Claim, SyntheticExamples, SyntheticTask
from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Expected, Lab, Listen, Result
from elman.models import StackConfig
from elman.training import TrainingConfig
from elman.training.synthetic_tasks import train_on_task

SYMBOLS = 8
DISTANCES = (5, 20, 50, 100)
FORGOTTEN = 0.5  # who is right less often at a distance is not asked for a longer one
READERS: dict[str, dict[str, Any]] = {
    "rnn": {"pattern": ["rnn"]},
    "lstm, forget bias 0": {"pattern": [{"lstm": {"forget_bias": 0.0}}]},  # as torch starts it
    "gru": {"pattern": ["gru"]},
    "lstm, forget bias 3": {"pattern": [{"lstm": {"forget_bias": 3.0}}]},
    "s4d": {"pattern": [{"s4d": {"state_size": 8}}]},
    "attention": {"pattern": ["attention"], "positions": "learned"},
}
TRAINING = TrainingConfig(
    max_steps=300, batch_size=32, learning_rate=1e-2, optimizer="adam", warmup_steps=0, evaluate_every=25
)
WIDTH = 32


class FirstSymbol(SyntheticTask):
    """One of 8 symbols, then noise, then the question: which symbol was it?"""

    solved, chance = 0.95, 1 / SYMBOLS
    symbols, answers = 2 * SYMBOLS, SYMBOLS
    claims: ClassVar[list[Claim]] = []

    class Config(SyntheticTask.Config):
        distance: int = Field(20, ge=1)
        """Noise after the symbol; the answer is due at the last of it."""

    config: Config

    def draw(self, dice: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        first = dice.integers(0, SYMBOLS, (rows, 1))
        inputs = np.concatenate([first, dice.integers(SYMBOLS, 2 * SYMBOLS, (rows, self.config.distance))], axis=1)
        asked = np.zeros(inputs.shape, dtype=bool)
        asked[:, -1] = True
        return SyntheticExamples(inputs, np.broadcast_to(first, inputs.shape), asked)


def experiment(seed: int, listen: Listen) -> Result:
    found = {name: staircase(name, seed, listen) for name in READERS}
    bars = {name: np.array([steps.get(distance, 0.0) for distance in DISTANCES]) for name, steps in found.items()}
    panel = Bars([f"{distance} back" for distance in DISTANCES], bars, "share right", (0, 1))
    notes = [
        f"Each bar is a network of {WIDTH} units, trained anew for at most {TRAINING.max_steps} steps; chance is "
        "one eighth. Who has forgotten is not asked for a longer distance, and has no bar."
    ]
    asked = {"rnn": (5, 20), "lstm, forget bias 0": (5, 20), "gru": (20, 50), "lstm, forget bias 3": (20,)}
    asked |= {"s4d": (100,), "attention": (100,)}
    measured = {f"{name}, {place} back": found[name].get(place, 0.0) for name in asked for place in asked[name]}
    return Result([Figure("Recalling the first symbol", [panel], notes)], measured)


def staircase(name: str, seed: int, listen: Listen) -> dict[int, float]:
    """The share of right answers by distance, up to the first at which it is forgotten."""
    config = StackConfig.make({"hidden_size": WIDTH, **READERS[name]})
    steps: dict[int, float] = {}

    def hear(step: int, right: float) -> None:
        listen(f"{name}, {distance} back", step, TRAINING.max_steps, 1 - right)

    for distance in DISTANCES:
        task = FirstSymbol(FirstSymbol.Config(distance=distance))
        steps[distance] = train_on_task(task, config, TRAINING, seed, torch.device("cpu"), hear)[1].score
        if steps[distance] < FORGOTTEN:
            break
    return steps


LAB = Lab(
    "who-remembers",
    "Memory",
    "One of 8 symbols comes first, then noise. How much noise may there be until a network no longer learns to recall "
    "the symbol?",
    "A staircase: a plain RNN, and an LSTM as torch starts it, know it 5 symbols later and not 20 later; a GRU, or an "
    "LSTM whose forget gate starts open, knows it 20 later; a state space that starts with long memories, and "
    "attention, which looks the symbol up, know it 100 later. All could store it: what fails is learning to, since no "
    "gradient comes back from so far (see the lab gradient-distance).",
    {
        "rnn, 5 back": Expected(0.95, 1.0),
        "rnn, 20 back": Expected(0.0, 0.5),
        "lstm, forget bias 0, 5 back": Expected(0.95, 1.0),
        "lstm, forget bias 0, 20 back": Expected(0.0, 0.25),
        "gru, 20 back": Expected(0.95, 1.0),
        "gru, 50 back": Expected(0.0, 0.25),
        "lstm, forget bias 3, 20 back": Expected(0.95, 1.0),
        "s4d, 100 back": Expected(0.95, 1.0),
        "attention, 100 back": Expected(0.95, 1.0),
    },
    experiment,
    "The order of the steps belongs to this budget and this learning rate. At a third of the rate the GRU failed at 20 "
    "and the state space at 100; with more units, steps or a curriculum all go further. Sweep the rate before ranking.",
)
