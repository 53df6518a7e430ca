"""Lab: subject-verb agreement with attractors, nouns of the other number in between (Linzen et al., 2016)."""

from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from elman.corpus.synthetic_tasks.base import Claim, SyntheticExamples, SyntheticTask
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.models import StackConfig
from elman.training import TrainingConfig
from elman.training.synthetic_tasks import TaskModel, train_on_task

NOUNS, PREPOSITIONS = 6, 4
QUESTION = 2 * NOUNS + PREPOSITIONS  # token ids: nouns 2 · noun + number, then prepositions, then "was or were?"
PHRASES, LONGER = 6, 12  # at most in training, and in the generalisation test
ROWS = 300
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "window of 4 words": {"pattern": [{"window": {"context": 4}}]},
    "mingru": {"pattern": ["mingru"]},
    "s4d": {"pattern": [{"s4d": {"state_size": 8}}]},
    "lstm": {"pattern": ["lstm"]},
    "attention, 2 layers": {
        "pattern": ["attention", "feedforward"],
        "num_layers": 4,
        "positions": "learned",
        "residual": True,
        "norm": "pre",
    },
}
TRAINING = TrainingConfig(
    max_steps=400,
    batch_size=32,
    learning_rate=1e-2,
    optimizer="adam",
    schedule="cosine",
    warmup_steps=20,
    evaluate_every=50,
)


class Number(SyntheticTask):
    """The cats [near the dog [behind the girls]] was or were? A noun, prepositional phrases, the question."""

    solved, chance = 0.99, 0.5
    symbols, answers = QUESTION + 1, 2
    claims: ClassVar[list[Claim]] = []

    class Config(SyntheticTask.Config):
        attractors: float = Field(0.25, ge=0, le=1)
        """Probability that a later noun has the other number than the first: as in real text, below one half."""

    config: Config

    def draw(self, dice: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        phrases = dice.integers(0, PHRASES + 1, rows)
        return sentences(dice, phrases, dice.random((rows, PHRASES)) < self.config.attractors)


def sentences(dice: np.random.Generator, phrases: np.ndarray, others: np.ndarray) -> SyntheticExamples:
    """With this many phrases each; nouns have the other number where `others` is true."""
    rows, longest = others.shape
    number = dice.integers(0, 2, (rows, 1))
    numbers = np.concatenate([number, np.where(others, 1 - number, number)], axis=1)
    inputs = np.full((rows, 2 * longest + 2), QUESTION)
    inputs[:, :-1:2] = 2 * dice.integers(0, NOUNS, numbers.shape) + numbers
    inputs[:, 1:-1:2] = 2 * NOUNS + dice.integers(0, PREPOSITIONS, others.shape)
    mask = np.arange(2 * longest + 2) == (2 * phrases + 1)[:, None]
    inputs[mask] = QUESTION  # tokens after it come too late to change the answer
    return SyntheticExamples(inputs, np.broadcast_to(number, inputs.shape), mask)


def experiment(seed: int, progress: Progress) -> Result:
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    beliefs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    measured = {}
    for name, stack in ARCHITECTURES.items():

        def on_step(step: int, right: float, name: str = name) -> None:
            progress(name, step, TRAINING.max_steps, 1 - right)

        config = StackConfig.make({"hidden_size": 32, **stack})
        model, outcome = train_on_task(Number(Number.Config()), config, TRAINING, seed, torch.device("cpu"), on_step)
        shares = [correct_probabilities(model, PHRASES, count, seed) for count in range(PHRASES + 1)]
        curves[name] = (np.arange(PHRASES + 1), np.array([(row > 0.5).mean() for row in shares]))
        beliefs_at = [correct_probabilities(model, count, count, seed).mean() for count in range(LONGER + 1)]
        beliefs[name] = (np.arange(LONGER + 1), np.array(beliefs_at))
        measured[f"{name}: all sentences"] = outcome.score
        measured[f"{name}: {PHRASES} of {PHRASES} nouns attract"] = float(curves[name][1][-1])
    by_count = Lines(
        curves,
        "attractors among the six nouns",
        "accuracy",
        limits=(-0.03, 1.03),
        title="Accuracy with six phrases between subject and verb",
    )
    by_distance = Lines(
        beliefs,
        "phrases, each with an attractor",
        "probability of the correct form",
        limits=(-0.03, 1.03),
        x_span=(0, PHRASES),
        x_span_label="training lengths",
        title="Probability of the correct form by the number of phrases",
    )
    return Result([Figure("Was or were?", [by_count, by_distance])], measured)


def correct_probabilities(model: TaskModel, phrases: int, attractors: int, seed: int) -> np.ndarray:
    """Probability of the correct form in new sentences with exactly this many attractors."""
    dice = np.random.default_rng([seed, 3, phrases, attractors])
    others = dice.random((ROWS, phrases)).argsort(axis=1) < attractors
    examples = sentences(dice, np.full(ROWS, phrases), others)
    with inference_mode(model):
        found = model(torch.from_numpy(examples.inputs))[:, -1].softmax(-1).numpy()
    return found[np.arange(ROWS), examples.targets[:, -1]]


LAB = Lab(
    "agreement",
    "Agreement",
    "“The cats near the dog …”: the first noun decides between was and were, and most nouns after it have the same "
    "number. Which models learn the rule, and which a heuristic?",
    "Over all sentences the accuracies are close: even a window of four words, which often does not contain the "
    "subject, is right about four times in five, since most nouns agree. Attractors separate the models. With six "
    "attractors the window is always wrong, and so are one layer of minGRU or S4D, whose overall accuracy is 95 %: "
    "they do not store the subject but take a majority vote over the nouns. An LSTM, whose gates depend on its "
    "state, finds the first noun, and so do two layers of attention for four of five seeds.",
    {
        "window of 4 words: all sentences": Expected(0.72, 0.88),
        "window of 4 words: 6 of 6 nouns attract": Expected(0.0, 0.05),
        "mingru: all sentences": Expected(0.9, 0.98),
        "mingru: 6 of 6 nouns attract": Expected(0.0, 0.1),
        "s4d: all sentences": Expected(0.92, 0.98),
        "s4d: 6 of 6 nouns attract": Expected(0.0, 0.1),
        "lstm: all sentences": Expected(0.98, 1.0),
        "lstm: 6 of 6 nouns attract": Expected(0.95, 1.0),
        "attention, 2 layers: all sentences": Expected(0.95, 1.0),
        "attention, 2 layers: 6 of 6 nouns attract": Expected(0.5, 1.0),
    },
    experiment,
    "Here the form of the verb is the only training objective (as in Linzen et al., 2016). In language modelling "
    "it is learnt much later, and suddenly, at a step that differs between seeds. A second layer, whose gates "
    "depend on the output of the first, lets minGRU learn the rule; a second layer of S4D only improves the vote.",
)
