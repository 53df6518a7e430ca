"""Small models that labs and probes train, while a callback shows the progress."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Buckets, ExampleStore, collate
from elman.corpus.labelled_corpus import LabelledText, LabelSet, label_rows
from elman.corpus.synthetic_tasks import SyntheticTask
from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.models import Classifier, ClassifierConfig, StackConfig
from elman.tokenizers import Tokenizer, train_tokenizer
from elman.training import Trainer, TrainingConfig
from elman.training.synthetic_tasks import TaskModel, train_on_task

Progress = Callable[[str, int, int, float], None]  # name of the model, step, number of steps, loss
TRANSFORMER = {"num_layers": 4, "positions": "learned", "residual": True, "norm": "pre"}  # two blocks of two layers

# Words and number of the synthetic reviews; hidden units of their classifier
THINGS = ("movie", "film", "story", "plot", "cast", "ending", "music", "book")
ADVERBS = ("very", "really", "so", "quite", "rather")
GOOD = ("great", "good", "funny", "clever", "moving", "fresh")
BAD = ("awful", "bad", "dull", "clumsy", "shallow", "stale")
SENTENCES, UNITS = 3000, 16


def silent(name: str, step: int, steps: int, loss: float) -> None:
    """Progress that is not shown."""


def adam(
    learning_rate: float, *, schedule: Literal["constant", "cosine"] = "cosine", warmup_steps: int = 20, **settings: Any
) -> TrainingConfig:
    """Adam, with a short warm-up and a cosine schedule where nothing else is said."""
    return TrainingConfig(
        optimizer="adam", learning_rate=learning_rate, schedule=schedule, warmup_steps=warmup_steps, **settings
    )


def fit(name: str, model: Any, batches: Any, training: TrainingConfig, progress: Progress) -> list[tuple[int, float]]:
    """Trains a model, and gives its training loss at each logged step."""
    trainer, losses = Trainer(model, batches, training), []
    for report in trainer:
        if report.kind == "step":
            losses.append((report.step, report.values["loss"]))
            progress(name, report.step, trainer.total_steps, report.values["loss"])
    return losses


def fit_task(
    name: str, task: SyntheticTask, settings: Mapping[str, Any], training: TrainingConfig, seed: int, progress: Progress
) -> tuple[TaskModel, float]:
    """A stack with these settings trained on a synthetic task, and its test score; the loss shown is the error rate."""

    def on_validation(step: int, score: float) -> None:
        progress(name, step, training.max_steps, 1 - score)

    config = StackConfig.make(settings)
    model, found = train_on_task(task, config, training, seed, torch.device("cpu"), on_validation)
    return model, found.score


class TextClassifier(NamedTuple):
    model: Classifier
    tokenizer: Tokenizer
    labels: LabelSet

    def reading(self, text: str) -> InspectedText:
        ids = self.tokenizer.encode(text).tolist()
        return inspect_classifier(self.model, ids, text.split(), self.labels.names)

    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """Of the positive class."""
        batch = collate([{"text": ids} for ids in self.tokenizer.encode_batch(list(texts))])
        return self.model.probabilities(batch)[:, self.labels.numbers["positive"]]


def fit_classifier(
    name: str, texts: Sequence[LabelledText], settings: Mapping[str, Any], seed: int, progress: Progress
) -> TextClassifier:
    """A classifier of words, trained for eight epochs."""
    labels, tokenizer = LabelSet.of(texts), train_tokenizer("word", [text.text for text in texts])
    training = adam(0.01, warmup_steps=0, batch_size=32, max_epochs=8)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        store = ExampleStore.build(label_rows(texts, labels, tokenizer.encode_batch), Path(folder), "train")
        torch.manual_seed(seed)
        model = Classifier(ClassifierConfig.make(settings), tokenizer.vocab_size, len(labels))
        fit(name, model, Buckets(store, training.batch_size, seed, by=("text",), unit=model.unit), training, progress)
    return TextClassifier(model.eval(), tokenizer, labels)


def reviews(count: int, seed: int) -> list[LabelledText]:
    """A subject, "was", optionally "not", up to two adverbs and an adjective."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        good, negated = bool(rng.integers(2)), bool(rng.integers(2))
        words = ["the", str(rng.choice(THINGS)), "was", *(["not"] if negated else [])]
        words += [str(word) for word in rng.choice(ADVERBS, int(rng.integers(3)))]
        words.append(str(rng.choice(GOOD if good else BAD)))
        label = "positive" if good != negated else "negative"
        found.append(LabelledText(" ".join(words), "reviews", number + 1, labels=(label,)))
    return found


def train_reviewer(seed: int, progress: Progress, **settings: Any) -> TextClassifier:
    """An LSTM with 16 units; every_token=True trains the label at each word."""
    default = {"pattern": [{"lstm": {"forget_bias": 0.0}}], "hidden_size": UNITS}  # the bias of PyTorch
    return fit_classifier("reviews", reviews(SENTENCES, seed), {**default, **settings}, seed, progress)
