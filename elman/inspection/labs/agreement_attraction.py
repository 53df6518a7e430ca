"""Lab: subject-verb agreement with attractors, nouns of the other number in between (Linzen et al., 2016)."""

from typing import Any

import numpy as np
import torch
from pydantic import Field

from elman.corpus.synthetic_tasks.base import SyntheticExamples, SyntheticTask
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import SHARE, Lines
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.small_models import TRANSFORMER, adam, fit_task
from elman.training.synthetic_tasks import TaskModel

NOUNS, PREPOSITIONS = 6, 4
QUESTION = 2 * NOUNS + PREPOSITIONS  # token ids: nouns 2 · noun + number, then prepositions, then "was or were?"
PHRASES, LONGER = 6, 12  # at most in training, and in the generalisation test
ROWS = 300
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "window of 4 words": {"pattern": [{"window": {"context": 4}}]},
    "mingru": {"pattern": ["mingru"]},
    "s4d": {"pattern": [{"s4d": {"state_size": 8}}]},
    "lstm": {"pattern": ["lstm"]},
    "attention, 2 layers": {"pattern": ["attention", "feedforward"], **TRANSFORMER},
}
TRAINING = adam(1e-2, batch_size=32, max_steps=400, evaluate_every=50)


class Number(SyntheticTask):
    """The cats [near the dog [behind the girls]] was or were? A noun, prepositional phrases, the question."""

    solved, chance = 0.99, 0.5
    symbols, answers = QUESTION + 1, 2

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


def experiment(seed: int, progress: Progress, *, units: int = 32, steps: int = 400, attractors: float = 0.25) -> Result:
    accuracy, beliefs, measured = {}, {}, {}
    training = TRAINING.model_copy(update={"max_steps": steps})
    for name, stack in ARCHITECTURES.items():
        task, settings = Number(Number.Config(attractors=attractors)), {"hidden_size": units, **stack}
        model, score = fit_task(name, task, settings, training, seed, progress)
        counts, lengths = range(PHRASES + 1), range(LONGER + 1)
        right = [float((correct_probabilities(model, PHRASES, count, seed) > 0.5).mean()) for count in counts]
        accuracy[name] = (counts, right)
        beliefs[name] = (lengths, [correct_probabilities(model, count, count, seed).mean() for count in lengths])
        measured[f"{name}: all sentences"] = score
        measured[f"{name}: {PHRASES} of {PHRASES} nouns attract"] = right[-1]
    title = "Accuracy with six phrases between subject and verb"
    by_count = Lines(accuracy, "attractors among the six nouns", "accuracy", limits=SHARE, title=title)
    title, quantity = "Probability of the correct form by the number of phrases", "probability of the correct form"
    span: dict[str, Any] = {"x_span": (0, PHRASES), "x_span_label": "training lengths"}
    by_distance = Lines(beliefs, "phrases, each with an attractor", quantity, limits=SHARE, title=title, **span)
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
        "window of 4 words: all sentences": (0.72, 0.88),
        "window of 4 words: 6 of 6 nouns attract": (0.0, 0.05),
        "mingru: all sentences": (0.9, 0.98),
        "mingru: 6 of 6 nouns attract": (0.0, 0.1),
        "s4d: all sentences": (0.92, 0.98),
        "s4d: 6 of 6 nouns attract": (0.0, 0.1),
        "lstm: all sentences": (0.98, 1.0),
        "lstm: 6 of 6 nouns attract": (0.95, 1.0),
        "attention, 2 layers: all sentences": (0.95, 1.0),
        "attention, 2 layers: 6 of 6 nouns attract": (0.5, 1.0),
    },
    experiment,
    "Here the form of the verb is the only training objective (as in Linzen et al., 2016). In language modelling "
    "it is learnt much later, and suddenly, at a step that differs between seeds. A second layer, whose gates "
    "depend on the output of the first, lets minGRU learn the rule; a second layer of S4D only improves the vote.",
    try_next={
        "attractors=0.5": "What is learnt where half of the later nouns differ, so that a vote is worth nothing?",
        "steps=1600": "Do minGRU and S4D find the rule with four times the steps?",
    },
)
