"""Classifier: pooling by definition, running verdicts, losses by brute force, and learning."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from elman.batches.examples import Buckets, Examples, ExampleStore, Ragged
from elman.corpus import LabelSet, label_rows
from elman.corpus.synthetic.word_order import word_order
from elman.errors import ConfigError
from elman.models import Classifier, ClassifierConfig
from elman.models.text_reader import Pooling
from elman.ops import taps
from elman.ops.lookup import distinct
from elman.tokenizers import train_tokenizer

WORDS, LABELS, TIME = 11, 3, 6
POOLINGS = ["last", "mean", "max", "attention"]
PATTERNS: dict[str, list[Any]] = {
    "bag of words": [],
    "causal": ["lstm", "feedforward"],
    "attention": ["attention"],
    "both sides": ["bidirectional", "two-way-attention"],
}
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)


def build(pattern: str = "causal", several: bool = False, weights: list[float] | None = None, **settings) -> Classifier:
    torch.manual_seed(0)
    config = ClassifierConfig.make({"hidden_size": 8, "pattern": PATTERNS[pattern], **settings}, where="model")
    return Classifier(config, WORDS, LABELS, several, weights).double().eval()


def batch_of(lengths: list[int], seed: int = 0, several: bool = False, unit: str = "", noise: int = 0) -> Examples:
    """Padding holds `noise`, which must not affect results."""
    dice = torch.Generator().manual_seed(seed)
    values = torch.randint(WORDS, (len(lengths), max(lengths)), generator=dice)
    text = Ragged(values, torch.tensor(lengths))
    text = text._replace(values=values.masked_fill(~text.mask(), noise))
    if several:
        ones = torch.randint(2, (len(lengths), LABELS), generator=dice)
        return Examples({"text": text, "label": Ragged(ones, torch.full((len(lengths),), LABELS))}, unit)
    return Examples({"text": text, "label": torch.randint(LABELS, (len(lengths),), generator=dice)}, unit)


def alone(batch: Examples, row: int, length: int) -> Examples:
    """The beginning of one text, without padding."""
    fields = {**batch.rows(slice(row, row + 1)).fields}
    fields["text"] = Ragged(batch.ragged("text").values[row : row + 1, :length], torch.tensor([length]))
    return batch._replace(fields=fields)


def pooled_by_definition(pooling: Pooling, x: Tensor) -> Tensor:
    """One text (time, width), at least one token."""
    if pooling.kind == "max":
        return torch.stack([max(unit) for unit in x.T])
    if pooling.kind == "attention":
        weights = torch.stack([pooling.to_score(one) for one in x]).softmax(0)
        return (weights * x).sum(0)
    return x[-1] if pooling.kind == "last" else sum(x) / len(x)


@every_pooling
@given(lengths=st.lists(st.integers(0, TIME), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_pooling_matches_its_definition_and_ignores_padding(pooling, lengths, seed):
    """Padding is NaN here. Catches the mean over all positions, the last position instead of the last real
    one, a maximum that padding's zeros could win, and running sums over padding."""
    torch.manual_seed(seed)
    pool = Pooling(pooling, 5).double()
    real = torch.arange(TIME) < torch.tensor(lengths)[:, None]
    x = (torch.randn(len(lengths), TIME, 5).double() - 2).masked_fill(~real.unsqueeze(-1), torch.nan).requires_grad_()
    whole, running = pool(x, real), pool.running(x, real)
    for row, length in enumerate(lengths):
        if length == 0:
            assert (whole[row] == 0).all()
        for end in range(1, length + 1):
            torch.testing.assert_close(running[row, end - 1], pooled_by_definition(pool, x[row, :end]))
        if length:
            torch.testing.assert_close(whole[row], running[row, length - 1])
    (gradient,) = torch.autograd.grad(whole.sum() + running[real].sum(), x)
    assert gradient.isfinite().all()
    assert (gradient[~real] == 0).all()


@every_pooling
@every_pattern
def test_batching_and_padding_do_not_change_outputs(pattern, pooling):
    """Catches lengths not passed to the stack."""
    model, lengths = build(pattern, pooling=pooling, head_size=4), [6, 1, 4]
    together = model.probabilities(batch_of(lengths))
    torch.testing.assert_close(together.sum(1), torch.ones(3).double())
    torch.testing.assert_close(model.probabilities(batch_of(lengths, noise=5)), together)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(model.probabilities(alone(batch_of(lengths), row, length))[0], together[row])


@every_pooling
@every_pattern
@pytest.mark.parametrize("several", [False, True])
def test_running_verdicts_equal_those_of_prefixes(pattern, pooling, several):
    """Catches verdicts of two-way layers taken from one pass."""
    model, batch = build(pattern, several, pooling=pooling), batch_of([6, 3, 0], several=several)
    verdicts = model.verdicts(batch)
    assert verdicts.shape == (3, 6, LABELS)
    for row, length in enumerate([6, 3, 0]):
        for end in range(1, length + 1):
            torch.testing.assert_close(verdicts[row, end - 1], model.probabilities(alone(batch, row, end))[0])


def test_multi_label_probabilities_are_independent():
    """Catches shares of one."""
    model, batch = build(several=True), batch_of([6, 3, 2], several=True)
    torch.testing.assert_close(model.probabilities(batch), 1 / (1 + (-model.logits(batch.ragged("text"))).exp()))


def loss_by_definition(model: Classifier, logits: Tensor, truth: Tensor, weights: list[float], smooth: float) -> Tensor:
    """One text, or one position: `truth` is a one for each label it has."""
    if model.several:
        chances, goal = logits.sigmoid(), truth * (1 - smooth) + smooth / 2
        return -(torch.tensor(weights) * goal * chances.log() + (1 - goal) * (1 - chances).log()).sum()
    goal = truth * (1 - smooth) + smooth / LABELS
    return -(goal * torch.tensor(weights) * logits.log_softmax(0)).sum()


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("every_token", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_loss_equals_the_definition(several, every_token, training):
    """Over texts or real positions, by their number; smoothed and weighted in training only. Catches padded
    positions counted, a mean for a sum, labels of the wrong rows at positions, and smoothing in evaluation."""
    lengths, weights = [6, 2, 3, 1], [0.5, 1.0, 3.0]
    model = build(several=several, weights=weights, every_token=every_token, label_smoothing=0.1, pooling="mean")
    batch = batch_of(lengths, several=several, unit=model.unit)
    loss, state = model.train(training).batch_loss(batch)
    assert state is None
    assert batch.real == (sum(lengths) if every_token else 4)
    expected = torch.zeros(()).double()
    for row, length in enumerate(lengths):
        truth = batch.ragged("label").values[row] if several else F.one_hot(batch.plain("label"), LABELS)[row]
        for end in range(1, length + 1) if every_token else [length]:
            logits = model.logits(alone(batch, row, end).ragged("text"))[0]
            used = (weights, 0.1) if training else ([1.0] * LABELS, 0.0)
            expected = expected + loss_by_definition(model, logits, truth.double(), *used)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("every_token", [False, True])
def test_batch_loss_is_the_sum_over_micro_batches(every_token):
    model = build(every_token=every_token)
    batch = batch_of([6, 4, 3, 1], unit=model.unit)
    parts = [batch.rows(slice(0, 2)), batch.rows(slice(2, 4))]
    torch.testing.assert_close(model.batch_loss(batch)[0], sum(model.batch_loss(part)[0] for part in parts))
    assert batch.real == sum(part.real for part in parts)


@every_pooling
@every_pattern
def test_every_parameter_has_a_gradient_also_with_empty_texts(pattern, pooling):
    model = build(pattern, pooling=pooling, head_size=8).train()
    model.batch_loss(batch_of([5, 0, 2]))[0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert model.probabilities(batch_of([0, 0])).isfinite().all()
    assert model.verdicts(batch_of([0, 0])).shape == (2, 0, LABELS)


@every_pooling
def test_recording_has_no_effect_and_pooling_weights_sum_to_one(pooling):
    model, batch = build(pooling=pooling), batch_of([6, 2])
    before = model.probabilities(batch)
    names = ["pooling.vector", "output.logits", "embedding"] + ["pooling.weights"] * (pooling != "max")
    with taps.record(*names) as seen:
        torch.testing.assert_close(model.probabilities(batch), before)
    assert set(seen.sites()) == set(names) <= set(Classifier.sites)
    assert seen["pooling.vector"].shape == (2, 1, 8)
    assert seen["output.logits"].shape == (2, 1, LABELS)
    if pooling != "max":
        weights = seen["pooling.weights"]
        torch.testing.assert_close(weights.sum(1), torch.ones(2))
        assert (weights[1, 2:] == 0).all()
    with taps.record("pooling.vector", "output.logits") as running:
        model.verdicts(batch)
    assert running["pooling.vector"].shape == (2, 6, 8)
    torch.testing.assert_close(running["output.logits"][0, -1:], seen["output.logits"][0])


def test_dropout_applies_to_the_pooled_vector_in_training_only():
    model, batch = build("bag of words", output_dropout=0.5), batch_of([4, 4])
    assert torch.equal(model.probabilities(batch), model.probabilities(batch))
    model.train()
    assert not torch.equal(model.probabilities(batch), model.probabilities(batch))


def test_class_weights_are_saved_with_the_model():
    kept = build(weights=[1.0, 2.0, 3.0]).state_dict()
    fresh = build()
    fresh.load_state_dict(kept)
    assert fresh.class_weights.tolist() == [1.0, 2.0, 3.0]


def test_invalid_model_settings_are_rejected():
    with pytest.raises(ConfigError, match=r"every_token: .* but bidirectional is bidirectional"):
        build("both sides", every_token=True)
    with pytest.raises(ConfigError, match="the pattern is empty"):
        build("bag of words", num_layers=2)
    with pytest.raises(ConfigError, match="did you mean 'lstm'"):
        ClassifierConfig.make({"pattern": ["lsdm"]})


def accuracy_on_word_order(folder, epochs: int, **settings: Any) -> float:
    train, test = word_order("train", 600), word_order("test", 200)
    labels = LabelSet.of(train)
    tokenizer = train_tokenizer("word", [text.text for text in train])
    rows = {"train": train, "test": test}
    stores = {
        name: ExampleStore.build(label_rows(texts, labels, tokenizer.encode_batch), folder, name)
        for name, texts in rows.items()
    }
    torch.manual_seed(1)
    model = Classifier(ClassifierConfig.make({"hidden_size": 24, **settings}), tokenizer.vocab_size, len(labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = Buckets(stores["train"], 32, by=("text",), unit=model.unit)
    for number in range(epochs):
        for batch in batches.epoch(number):
            optimizer.zero_grad()
            (model.batch_loss(batch)[0] / batch.real).backward()
            optimizer.step()
    model.eval()
    (batch,) = Buckets(stores["test"], 400, by=("text",)).epoch(0)
    return (model.probabilities(batch).argmax(1) == batch.plain("label")).double().mean().item()


@pytest.mark.slow
def test_only_order_sensitive_models_separate_good_not_bad_from_bad_not_good(tmp_path):
    recurrent = [{"pattern": ["gru"]}, {"pattern": ["bidirectional"], "pooling": "attention"}]
    for settings in [*recurrent, {"pattern": ["gru"], "every_token": True}]:
        assert accuracy_on_word_order(tmp_path, 8, **settings) >= 0.99
    assert accuracy_on_word_order(tmp_path, 8, pattern=[], pooling="mean", head_size=24) == 0.5


@pytest.mark.parametrize("pattern", [["lstm"], ["gru", "lstm"], ["bidirectional"], ["attention", "lstm"], []])
@every_pooling
def test_many_tokens_are_looked_up_once_each_and_give_the_same(monkeypatch, pattern, pooling):
    """Catches tokens mixed up, the order of the second direction, and a first layer that needs the sequence."""
    torch.manual_seed(0)
    config = ClassifierConfig.make({"hidden_size": 8, "pattern": pattern, "pooling": pooling}, where="model")
    model = Classifier(config, WORDS, LABELS).double().eval()
    batch = batch_of([4, 0, 7, 1, 7])
    wanted = model.logits(batch.ragged("text"))
    read = []
    monkeypatch.setattr("elman.ops.lookup.MANY", 1)
    monkeypatch.setattr("elman.models.text_reader.distinct", lambda *given: read.append(1) or distinct(*given))
    with torch.no_grad():
        torch.testing.assert_close(model.logits(batch.ragged("text")), wanted, atol=1e-10, rtol=0)
        assert bool(read) == (pattern[:1] not in ([], ["attention"]))
        with taps.record("output.logits") as seen:
            model.logits(batch.ragged("text"))
    assert len(read) <= 1  # not while a recorder listens
    torch.testing.assert_close(seen["output.logits"].squeeze(), wanted.float(), atol=1e-5, rtol=0)
