"""Fitting: degenerate counts, storage, settings, reports of a run, and published perplexities."""

import gzip
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ngram_cases import EOS, SMOOTHINGS, fitted, regular, stored

from elman.batches import ParallelStreams, TokenStore
from elman.corpus.document import Document
from elman.errors import ConfigError
from elman.evaluation import evaluate
from elman.generation import GenerationConfig
from elman.generation.stream import generate_tokens
from elman.models.ngram import NGram, NGramConfig
from elman.models.ngram.tables import sort_with_permutation
from elman.ops import taps
from elman.runs import Checkpoint
from elman.runs.checkpoint import CheckpointFolder
from elman.tokenizers import train_tokenizer
from elman.training import CountTrainer, TrainingConfig

STRANGE = {
    "one token": [[1]],
    "nothing but ends": [[], [], []],
    "one sign repeated": [[1] * 50],
    "each n-gram once": [[1, 2, 3, 4]],
    "a small alphabet": [np.random.default_rng(0).integers(1, 4, 5000).tolist()],
}


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("docs", STRANGE.values(), ids=list(STRANGE))
def test_degenerate_counts_can_be_smoothed(docs: list[list[int]], smoothing: str) -> None:
    """Catches: discounts estimated without n-grams seen twice."""
    model = fitted(docs, order=4, smoothing=smoothing)
    logits, _ = model(torch.tensor([[EOS, 1, 2, 5, 1, 1, EOS]]))
    torch.testing.assert_close(logits.double().exp().sum(-1), torch.ones(1, 7).double(), rtol=0, atol=1e-6)
    if smoothing != "maximum-likelihood":
        assert logits.isfinite().all()


def test_fallback_discounts_are_reported() -> None:
    model = fitted([[1, 2, 3, 4]], order=2)
    assert [note.partition(":")[0] for note in model.notes] == [
        "too few counts of 1 to 3 among 1-grams",
        "too few counts of 1 to 3 among 2-grams",
    ]
    assert model.facts()["discounts"] == [[0.5, 1.0, 1.5]] * 2
    estimated = fitted(regular(3000, vocab_size=60), 61, order=3)
    assert not [note for note in estimated.notes if "3-grams" in note]
    assert estimated.facts()["discounts"][2] != [0.5, 1.0, 1.5]


def test_facts_have_counts_and_memory() -> None:
    docs = regular(3000, vocab_size=60)
    model = fitted(docs, 61, order=4)
    lines = [[EOS, *doc, EOS] for doc in docs]
    distinct = [len({tuple(line[i : i + k]) for line in lines for i in range(len(line) - k + 1)}) for k in (2, 3, 4)]
    facts = model.facts()
    assert facts["ngrams"] == [61, *distinct]
    assert facts["bytes"] == sum(part.nbytes for name, part in model.state_dict().items() if name != "discounts")
    assert facts["bytes_per_ngram"] <= 16


def test_pruning_keeps_frequent_n_grams() -> None:
    docs = [[1, 2, 3]] * 3 + [[1, 4]]
    assert fitted(docs, order=2, prune=[1, 2]).facts()["ngrams"] == [6, 4]  # <s> 1, 1 2, 2 3, 3 </s>
    assert fitted(docs, order=2, prune=[1, 4]).facts()["ngrams"] == [6, 1]


def test_a_checkpoint_holds_the_model(tmp_path: Path) -> None:
    """Catches: an infinite log-probability in a table."""
    for smoothing in SMOOTHINGS:
        model = fitted(regular(), order=3, smoothing=smoothing)
        CheckpointFolder(tmp_path / smoothing).save(Checkpoint(1, model.state_dict()))
        again = NGram(model.config, model.vocab_size)
        again.load_state_dict(CheckpointFolder(tmp_path / smoothing).load().weights)
        tokens = torch.tensor([[EOS, 1, 2, 3, 5]])
        assert torch.equal(again(tokens)[0], model(tokens)[0])
        assert again.facts() == model.facts()


def test_weights_of_another_vocabulary_are_rejected() -> None:
    """Catches: the table of all words took any length."""
    model = fitted(regular(), order=3)
    for other in (NGram(NGramConfig(order=4), 6), NGram(NGramConfig(order=2), 6), NGram(NGramConfig(order=3), 7)):
        with pytest.raises(RuntimeError):
            other.load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 0}, "order"),
        ({"prune": [2, 3]}, "must start with 1"),
        ({"prune": [1, 3, 2]}, "not decrease"),
        ({"prune": []}, "must start with 1"),
        ({"discount": 0.5}, "discount applies to smoothing absolute or kneser-ney"),
        ({"smoothing": "kneserney"}, "smoothing"),
        ({"add_k": 0}, "add_k"),
    ],
)
def test_unusable_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NGramConfig.make(settings)


def test_n_gram_model_generates_text() -> None:
    model = fitted([[1, 2, 3], [1, 2, 4]] * 9, order=3, smoothing="maximum-likelihood")
    tokens = [step[0].token for step in generate_tokens(model, [[1]], GenerationConfig(max_tokens=2, seed=0), EOS)]
    assert tokens in ([2, 3], [2, 4])


def store_of(lines: list[str], folder: Path, min_frequency: int = 1, tokenizer: Any = None) -> tuple[TokenStore, Any]:
    tokenizer = tokenizer or train_tokenizer({"type": "word", "min_frequency": min_frequency}, lines)
    texts = (Document(line, size=len(line.encode()) + 1) for line in lines)
    return TokenStore.build(texts, tokenizer, folder, f"store-{len(lines)}"), tokenizer


def test_counting_reports_as_training_does(tmp_path: Path) -> None:
    """Start, notes, validation, save, end; a finished run only reports its end."""
    store, tokenizer = store_of(["a b c", "a b", "c a b"], tmp_path)
    model = NGram(NGramConfig(order=2), tokenizer.vocab_size)
    batches = ParallelStreams(store, 1, 8)
    fit = CountTrainer(
        model, batches, TrainingConfig(), validate=lambda: evaluate(model, batches, store.facts, "").loss
    )
    reports = list(fit)
    kinds = [report.kind for report in reports if report.kind != "note"]
    assert kinds == ["start", "validation", "save", "end"]
    validation = next(report for report in reports if report.kind == "validation")
    assert validation.values["improved"]
    assert validation.values["valid_loss"] < math.log(tokenizer.vocab_size)
    assert (validation.step, validation.tokens) == (1, store.facts.tokens)
    assert fit.ended == reports[-1].values["reason"] == "everything is counted"
    again = CountTrainer(model, batches, TrainingConfig())
    assert again.restore(fit.tensors(), fit.facts())
    assert [report.kind for report in again] == ["start", "save", "end"]


def test_interrupted_counting_leaves_no_checkpoint(tmp_path: Path) -> None:
    store, tokenizer = store_of(["a b c"], tmp_path)
    fit = CountTrainer(
        NGram(NGramConfig(order=3), tokenizer.vocab_size), ParallelStreams(store, 1, 8), TrainingConfig()
    )
    kinds = []
    for report in fit:
        kinds.append(report.kind)
        if report.kind == "note":
            fit.stop()
    assert kinds == ["start", "note", "end"]
    assert "interrupted" in str(fit.ended)


def test_infinite_validation_loss_is_no_improvement(tmp_path: Path) -> None:
    store, tokenizer = store_of(["a b c"], tmp_path)
    model = NGram(NGramConfig(order=2, smoothing="maximum-likelihood"), tokenizer.vocab_size)
    fit = CountTrainer(model, ParallelStreams(store, 1, 8), TrainingConfig(), validate=lambda: math.inf)
    assert [report.values["improved"] for report in fit if report.kind == "validation"] == [False]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_large_vocabularies_do_not_overflow_keys(kind: Any) -> None:
    """Every n-gram of the text is found again. Catches: keys computed in 32 bits."""
    words = 60_000
    store = stored([np.random.default_rng(0).integers(1, words, 100_000).tolist()])
    store.tokens = store.tokens.astype(kind)
    model = NGram(NGramConfig(order=3), words)
    list(model.fit(store))
    assert int(model.tables[2].keys.max()) > 2**32
    tokens = torch.from_numpy(store.tokens.astype(np.int64)).unsqueeze(0)
    with taps.record("order") as seen:
        model.losses(torch.cat([torch.tensor([[EOS]]), tokens], 1), torch.cat([tokens, torch.tensor([[EOS]])], 1))
    assert seen["order"][0, :3].tolist() == [1, 2, 3]
    assert (seen["order"][0, 3:] == 3).all()


@given(keys=st.lists(st.integers(2**62 - 9, 2**62) | st.integers(0, 9), max_size=50))
def test_sort_returns_the_permutation(keys: list[int]) -> None:
    """Catches: positions packed with keys that overflow 64 bits."""
    numbers = np.array(keys, dtype=np.int64)
    rising, places = sort_with_permutation(numbers)
    assert rising.tolist() == sorted(keys)
    assert numbers[places].tolist() == sorted(keys)
    assert sorted(places.tolist()) == list(range(len(keys)))


PUBLISHED = [
    ("wikitext2", 1, 5, {"valid": 234.9, "test": 220.1}),
    ("wikitext2", 1, 3, {"valid": 242.3, "test": 226.1}),
    ("brown", 4, 3, {"valid": 156.9, "test": 147.7}),
    ("brown", 4, 5, {"valid": 156.0, "test": 146.7}),
]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("name", "min_frequency", "order", "expected"), PUBLISHED)
def test_perplexities_equal_those_of_kenlm(
    name: str, min_frequency: int, order: int, expected: dict[str, float], tmp_path: Path
) -> None:
    """Modified Kneser-Ney, each line a sentence: within 0.1 % of what KenLM gave on the same files."""
    folder = Path(os.environ.get("ELMAN_DATA") or "no-such-folder") / name
    if not folder.is_dir():
        pytest.skip(f"ELMAN_DATA has no folder {name}")
    packed = {split: (folder / f"{split}.txt.gz").read_bytes() for split in ("train", *expected)}
    lines = {split: gzip.decompress(content).decode().splitlines() for split, content in packed.items()}
    store, tokenizer = store_of(lines["train"], tmp_path, min_frequency)
    model = NGram(NGramConfig(order=order), tokenizer.vocab_size)
    list(model.fit(store))
    assert model.facts()["bytes_per_ngram"] <= 16
    for split, perplexity in expected.items():
        held_out, _ = store_of(lines[split], tmp_path / split, tokenizer=tokenizer)
        found = evaluate(model, ParallelStreams(held_out, 1, 20_000), held_out.facts, "")
        assert found.perplexity == pytest.approx(perplexity, rel=1e-3)
