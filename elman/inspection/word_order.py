"""Word order: classification of "good , not bad" against "bad , not good" by a recurrent model and a bag of words.

Both sentences have the same words, so a mean of word vectors gives both the same prediction. The models are trained on
sentences of this kind and on short phrases, and tested on new pairs and on two held-out phrases.
"""

import tempfile
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elman.batches import Buckets, Examples, ExampleStore
from elman.corpus.labelled_corpus import LabelledText, LabelSet, label_rows
from elman.corpus.synthetic.word_order import BAD, GOOD, word_order
from elman.models import Classifier, ClassifierConfig
from elman.tokenizers import train_tokenizer
from elman.training import Trainer, TrainingConfig

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "recurrent (gru)": {"pattern": ["gru"], "pooling": "last"},
    "mean of word vectors": {"pattern": [], "pooling": "mean", "head_size": 32},
}
TRAINING = TrainingConfig(
    batch_size=32, max_epochs=8, learning_rate=0.01, warmup_steps=0, schedule="cosine", optimizer="adam"
)
PAIRS = {"train": 1000, "test": 200}
PHRASES = {"not good": "negative", "good , not great": "positive"}


class Result(NamedTuple):
    """Of one model."""

    name: str
    parameters: int
    accuracy: float  # of test sentences
    pairs: float  # share of test pairs with both sentences right
    phrases: dict[str, float]  # probability of the positive class

    def plain(self) -> dict[str, Any]:
        return self._asdict()


def word_order_table(
    seed: int = 1, progress: Callable[[str, int, int, float], None] = lambda name, step, steps, loss: None
) -> list[Result]:
    """Trains and tests each model; `progress` gets its name, the step, the number of steps, and the loss."""
    sentences = {split: word_order(split, pairs, seed) for split, pairs in PAIRS.items()}
    sentences["train"] += phrases()
    sentences["phrases"] = [LabelledText(text, "phrases", 0, labels=(label,)) for text, label in PHRASES.items()]
    labels, tokenizer = LabelSet.of(sentences["train"]), train_tokenizer("word", [x.text for x in sentences["train"]])
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            name: ExampleStore.build(label_rows(texts, labels, tokenizer.encode_batch), Path(folder), name)
            for name, texts in sentences.items()
        }
        tested = {name: _all(stores[name]) for name in ("test", "phrases")}
        batches = Buckets(stores["train"], TRAINING.batch_size, seed, by=("text",))
        found = []
        for name, settings in ARCHITECTURES.items():
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                config = ClassifierConfig.make({"hidden_size": 32, **settings})
                model = Classifier(config, tokenizer.vocab_size, len(labels))
                trainer = Trainer(model, batches, TRAINING)
                for report in trainer:
                    if report.kind == "step":
                        progress(name, report.step, trainer.total_steps, report.values["loss"])
            found.append(_result(name, model.eval(), tested, labels.numbers["positive"]))
    return found


def phrases() -> Iterator[LabelledText]:
    """All short ones but the held-out: a negated word, or two words of which one is negated."""
    opposite = {"positive": "negative", "negative": "positive"}
    for words, label in ((GOOD, "positive"), (BAD, "negative")):
        texts = {f"not {word}": opposite[label] for word in words}
        texts |= {f"{word} , not {negated}": label for word, negated in permutations(words, 2)}
        for number, (text, truth) in enumerate(texts.items(), start=1):
            if text not in PHRASES:
                yield LabelledText(text, "phrases", number, labels=(truth,))


def _all(store: ExampleStore) -> Examples:
    """All sentences in their order, so that pairs are neighbours."""
    return next(iter(Buckets(store, len(store), by=(), shuffle=False).epoch(0)))


def _result(name: str, model: Classifier, tested: dict[str, Examples], positive: int) -> Result:
    right = (model.probabilities(tested["test"]).argmax(1) == tested["test"].plain("label")).view(-1, 2)
    phrases = model.probabilities(tested["phrases"])[:, positive].tolist()
    return Result(
        name,
        sum(parameter.numel() for parameter in model.parameters()),
        right.double().mean().item(),
        right.all(1).double().mean().item(),
        dict(zip(PHRASES, phrases, strict=True)),
    )
