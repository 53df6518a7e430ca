"""The word-order probe: who tells "good , not bad" from "bad , not good"?

Both have the same words, so whoever takes a mean of word vectors gives both the same answer. Trained on sentences of
this kind and on short phrases, a recurrent model and a mean of word vectors are asked for new pairs, and for two
phrases that are left out of training.
"""

import tempfile
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elman.batches import Buckets, Examples, ExampleStore
from elman.corpus.labelled_corpus import LabelledText
from elman.corpus.labels import LabelSet, label_rows
from elman.corpus.synthetic.word_order import BAD, GOOD, word_order
from elman.models import Classifier, ClassifierConfig
from elman.tokenizers import train_tokenizer
from elman.training import Trainer, TrainingConfig

READERS: dict[str, dict[str, Any]] = {
    "recurrent (gru)": {"pattern": ["gru"], "pooling": "last"},
    "mean of word vectors": {"pattern": [], "pooling": "mean", "head_size": 32},
}
TRAINING = TrainingConfig(
    batch_size=32, max_epochs=8, learning_rate=0.01, warmup_steps=0, schedule="cosine", optimizer="adam"
)
PAIRS = {"train": 1000, "test": 200}
PHRASES = {"not good": "negative", "good , not great": "positive"}


class Verdict(NamedTuple):
    """What one reader came to."""

    reader: str
    parameters: int
    accuracy: float  # share of sentences of the test
    pairs: float  # share of its pairs with both sentences right
    phrases: dict[str, float]  # probability that a phrase is positive

    def plain(self) -> dict[str, Any]:
        return self._asdict()


def word_order_table(
    seed: int = 1, listen: Callable[[str, int, int, float], None] = lambda reader, step, steps, loss: None
) -> list[Verdict]:
    """Train each reader and ask it; `listen` hears its name, the step, how many there will be, and the loss."""
    sentences = {split: word_order(split, pairs, seed) for split, pairs in PAIRS.items()}
    sentences["train"] += phrases()
    sentences["phrases"] = [LabelledText(text, "phrases", 0, labels=(label,)) for text, label in PHRASES.items()]
    labels, tokenizer = LabelSet.of(sentences["train"]), train_tokenizer("word", [x.text for x in sentences["train"]])
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            name: ExampleStore.build(label_rows(texts, labels, tokenizer.encode_batch), Path(folder), name)
            for name, texts in sentences.items()
        }
        asked = {name: _all(stores[name]) for name in ("test", "phrases")}
        batches = Buckets(stores["train"], TRAINING.batch_size, seed, by=("text",))
        found = []
        for reader, settings in READERS.items():
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                config = ClassifierConfig.make({"hidden_size": 32, **settings})
                model = Classifier(config, tokenizer.vocab_size, len(labels))
                trainer = Trainer(model, batches, TRAINING)
                for report in trainer:
                    if report.kind == "step":
                        listen(reader, report.step, trainer.total_steps, report.values["loss"])
            found.append(_verdict(reader, model.eval(), asked, labels.numbers["positive"]))
    return found


def phrases() -> Iterator[LabelledText]:
    """All short ones but those that will be asked: a word denied, or one of two words of a kind denied."""
    opposite = {"positive": "negative", "negative": "positive"}
    for words, label in ((GOOD, "positive"), (BAD, "negative")):
        texts = {f"not {word}": opposite[label] for word in words}
        texts |= {f"{said} , not {denied}": label for said, denied in permutations(words, 2)}
        for number, (text, truth) in enumerate(texts.items(), start=1):
            if text not in PHRASES:
                yield LabelledText(text, "phrases", number, labels=(truth,))


def _all(store: ExampleStore) -> Examples:
    """All sentences in their order, the two of a pair together."""
    return next(iter(Buckets(store, len(store), by=(), shuffle=False).epoch(0)))


def _verdict(reader: str, model: Classifier, asked: dict[str, Examples], positive: int) -> Verdict:
    right = (model.probabilities(asked["test"]).argmax(1) == asked["test"].plain("label")).view(-1, 2)
    phrases = model.probabilities(asked["phrases"])[:, positive].tolist()
    return Verdict(
        reader,
        sum(parameter.numel() for parameter in model.parameters()),
        right.double().mean().item(),
        right.all(1).double().mean().item(),
        dict(zip(PHRASES, phrases, strict=True)),
    )
