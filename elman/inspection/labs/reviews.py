"""Synthetic reviews with negation, and a small sentiment classifier, for labs on states and gates."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from elman.batches import Buckets, ExampleStore
from elman.corpus.labelled_corpus import LabelledText, LabelSet, label_rows
from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.inspection.labs.lab import Progress
from elman.models import Classifier, ClassifierConfig
from elman.tokenizers import Tokenizer, train_tokenizer
from elman.training import Trainer, TrainingConfig

THINGS = ("movie", "film", "story", "plot", "cast", "ending", "music", "book")
ADVERBS = ("very", "really", "so", "quite", "rather")
GOOD = ("great", "good", "funny", "clever", "moving", "fresh")
BAD = ("awful", "bad", "dull", "clumsy", "shallow", "stale")
SENTENCES, UNITS = 3000, 16
TRAINING = TrainingConfig(
    batch_size=32, max_epochs=8, learning_rate=0.01, warmup_steps=0, schedule="cosine", optimizer="adam"
)


class Reviewer(NamedTuple):
    model: Classifier
    tokenizer: Tokenizer
    labels: LabelSet

    def reading(self, text: str) -> InspectedText:
        ids = self.tokenizer.encode(text).tolist()
        return inspect_classifier(self.model, ids, text.split(), self.labels.names)


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


def train_reviewer(seed: int, progress: Progress, **settings: Any) -> Reviewer:
    """An LSTM with 16 units; every_token=True trains the label at each word."""
    texts = reviews(SENTENCES, seed)
    labels, tokenizer = LabelSet.of(texts), train_tokenizer("word", [text.text for text in texts])
    pattern = [{"lstm": {"forget_bias": 0.0}}]  # as PyTorch initialises it
    config = ClassifierConfig.make({"pattern": pattern, "hidden_size": UNITS, **settings})
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        store = ExampleStore.build(label_rows(texts, labels, tokenizer.encode_batch), Path(folder), "train")
        torch.manual_seed(seed)
        model = Classifier(config, tokenizer.vocab_size, len(labels))
        trainer = Trainer(model, Buckets(store, TRAINING.batch_size, seed, by=("text",), unit=model.unit), TRAINING)
        for report in trainer:
            if report.kind == "step":
                progress("reviews", report.step, trainer.total_steps, report.values["loss"])
    return Reviewer(model.eval(), tokenizer, labels)
