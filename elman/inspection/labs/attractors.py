"""Lab: agreement over a distance, with nouns of the other number in between."""

from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from elman.corpus.synthetic_tasks.base import Claim, SyntheticExamples, SyntheticTask
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.labs.lab import Expected, Lab, Listen, Result
from elman.models import StackConfig
from elman.training import TrainingConfig
from elman.training.synthetic_tasks import TaskModel, train_on_task

NOUNS, PREPOSITIONS = 6, 4
QUESTION = 2 * NOUNS + PREPOSITIONS  # "was or were?"; nouns are 2 · which + number, prepositions come after them
PHRASES, LONGER = 6, 12  # at the most in training, and in a harder test
ROWS = 300
READERS: dict[str, dict[str, Any]] = {
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
    """The cats [near the dog [behind the girls]] was or were? A noun, phrases with a noun each, the question."""

    solved, chance = 0.99, 0.5
    symbols, answers = QUESTION + 1, 2
    claims: ClassVar[list[Claim]] = []

    class Config(SyntheticTask.Config):
        attractors: float = Field(0.25, ge=0, le=1)
        """Share of later nouns with another number than the first: as in real text, less than half."""

    config: Config

    def draw(self, dice: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        phrases = dice.integers(0, PHRASES + 1, rows)
        return sentences(dice, phrases, dice.random((rows, PHRASES)) < self.config.attractors)


def sentences(dice: np.random.Generator, phrases: np.ndarray, others: np.ndarray) -> SyntheticExamples:
    """With so many phrases each, and nouns in them that have the other number where `others` says so."""
    rows, longest = others.shape
    number = dice.integers(0, 2, (rows, 1))
    numbers = np.concatenate([number, np.where(others, 1 - number, number)], axis=1)
    inputs = np.full((rows, 2 * longest + 2), QUESTION)
    inputs[:, :-1:2] = 2 * dice.integers(0, NOUNS, numbers.shape) + numbers
    inputs[:, 1:-1:2] = 2 * NOUNS + dice.integers(0, PREPOSITIONS, others.shape)
    asked = np.arange(2 * longest + 2) == (2 * phrases + 1)[:, None]
    inputs[asked] = QUESTION  # what stands after it is never read by who answers
    return SyntheticExamples(inputs, np.broadcast_to(number, inputs.shape), asked)


def experiment(seed: int, listen: Listen) -> Result:
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    beliefs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    measured = {}
    for name, stack in READERS.items():

        def hear(step: int, right: float, name: str = name) -> None:
            listen(name, step, TRAINING.max_steps, 1 - right)

        config = StackConfig.make({"hidden_size": 32, **stack})
        model, outcome = train_on_task(Number(Number.Config()), config, TRAINING, seed, torch.device("cpu"), hear)
        shares = [chances(model, PHRASES, count, seed) for count in range(PHRASES + 1)]
        curves[name] = (np.arange(PHRASES + 1), np.array([(row > 0.5).mean() for row in shares]))
        asked = [chances(model, count, count, seed).mean() for count in range(LONGER + 1)]
        beliefs[name] = (np.arange(LONGER + 1), np.array(asked))
        measured[f"{name}: all sentences"] = outcome.score
        measured[f"{name}: {PHRASES} of {PHRASES} nouns attract"] = float(curves[name][1][-1])
    by_count = Lines(
        curves,
        "nouns of the other number among the six",
        "share right",
        limits=(-0.03, 1.03),
        title="Six phrases between subject and verb",
    )
    by_distance = Lines(
        beliefs,
        "phrases so far, each noun of the other number",
        "probability of the right form",
        limits=(-0.03, 1.03),
        shaded=(0, PHRASES),
        shade_name="lengths of training",
        title="The same sentence, asked after more and more phrases",
    )
    return Result([Figure("Was or were?", [by_count, by_distance])], measured)


def chances(model: TaskModel, phrases: int, attractors: int, seed: int) -> np.ndarray:
    """The probability of the right form in new sentences that have exactly so many attractors."""
    dice = np.random.default_rng([seed, 3, phrases, attractors])
    others = dice.random((ROWS, phrases)).argsort(axis=1) < attractors
    examples = sentences(dice, np.full(ROWS, phrases), others)
    with inference_mode(model):
        found = model(torch.from_numpy(examples.inputs))[:, -1].softmax(-1).numpy()
    return found[np.arange(ROWS), examples.targets[:, -1]]


LAB = Lab(
    "agreement",
    "Agreement",
    "“The cats near the dog …”: the first noun decides between was and were, and usually the nouns after it have its "
    "number too. Who has learnt the rule, and who gets by without it?",
    "Over all sentences the readers are close: even a window of four words, which often cannot see the subject, is "
    "right about four times in five, since most nouns agree. Attractors tell them apart. When all six nouns in between "
    "have the other number, the window is always wrong, and so are one layer of minGRU or S4D, right 19 times in 20 "
    "overall: they do not remember the subject, they count votes, and are wrong as soon as the attractors are in the "
    "majority. An LSTM, whose gates see what it already knows, finds the first noun, and so do two layers of attention "
    "in four of five seeds.",
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
    "Here the form of the verb is all that is trained (as in Linzen et al., 2016). As one word among all others of a "
    "text it is learnt much later, and in sudden steps that differ from seed to seed. A second layer, whose gates see "
    "what the first one knows, lets minGRU learn the rule; a second layer of S4D only makes a better vote.",
)
