"""Masked models as whole runs: train, resume, judge, score, look inside; what they cannot do says what would work."""

import json

import pytest
import torch
from whole_runs import at_step, left, notes, run

import elman
from elman.corpus.synthetic import LANGUAGES
from elman.errors import ConfigError
from elman.generation import GenerationConfig, generate
from elman.models import Masked
from elman.pipeline.evaluate import evaluate_run


@pytest.fixture
def masked(recipe):
    """Dropout, micro-batches and a schedule, as `recipe` has them."""
    model = {"type": "masked", "hidden_size": 12, "dropout": 0.2, "pattern": ["two-way-attention", "feedforward"]}
    return {**recipe, "model": model}


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["carry", "reset"])
def test_a_masked_run_broken_off_goes_on_to_the_same_bits(folder, masked, boundary):
    """Catches masks drawn from a generator of the model's own, which no checkpoint knows."""
    masked["data"] |= {"boundary": boundary, "document": "line"}
    run(masked, "peaceful")
    run(masked, until=at_step(8))
    assert "going on after step 8" in notes(run(masked))
    assert left(folder / "run") == left(folder / "peaceful")


@pytest.mark.slow
def test_validation_is_the_same_number_each_time_and_close_to_the_score(folder, masked):
    """Catches a validation that hides tokens by dice."""
    masked["training"]["evaluate_every"] = 30
    reports = run(masked)
    followed = [report.values["valid_loss"] for report in reports if report.kind == "validation"]
    score = reports[-1].values["valid"]
    assert score["kind"] == "pseudo-likelihood"
    assert score["loss"] == pytest.approx(min(followed), rel=0.05)
    again = [report.values["valid_loss"] for report in run(masked, "again") if report.kind == "validation"]
    assert again == followed


@pytest.mark.slow
def test_a_run_is_judged_by_pseudo_likelihood_and_shows_filled_gaps(folder, masked):
    """Catches places counted on from piece to piece."""
    masked["evaluation"] = {"batch_size": 2}
    results = run(masked)[-1].values
    assert results["prediction"] == "masked"
    assert all("<mask>" in text and text.endswith((" ✓", ")")) for text in results["samples"])
    assert len(results["samples"]) == 4
    found = evaluate_run("run", split="valid")
    assert found["kind"] == "pseudo-likelihood"
    assert found["loss"] == pytest.approx(results["valid"]["loss"], rel=1e-6)
    assert "pieces of 10 tokens, each on its own" in found["context"]
    assert max(span["end"] for span in found["by_position"]) <= 15  # within a piece
    assert json.loads((folder / "run" / "results.json").read_text())["valid"]["kind"] == "pseudo-likelihood"


@pytest.mark.slow
def test_the_size_of_evaluation_batches_changes_speed_only(folder, masked):
    """Catches padding among the places of a piece."""
    masked["data"] |= {"boundary": "reset", "document": "line"}
    run(masked)
    trained = elman.load("run")
    lines = (folder / "text.txt").read_text().splitlines()[:9]
    total = sum(trained.score(line).log_prob for line in lines)
    (folder / "some.txt").write_text("\n".join(lines) + "\n")
    found = evaluate_run("run", data=["some.txt"])
    assert found["nats"] == pytest.approx(-total, rel=1e-5)
    assert "each line on its own, in pieces of at most 10 tokens" in found["context"]


@pytest.mark.slow
def test_a_score_is_the_pseudo_log_likelihood_piece_by_piece(folder, masked):
    """Catches pieces as long as those of other models, which this one never met in training."""
    run(masked)
    trained = elman.load("run", "cpu")
    text = "the cat sat on a"
    ids = torch.tensor([[*trained.tokenizer.encode(text), trained.tokenizer.eos_id]])
    nats = 0.0
    for piece in ids.split(10, dim=1):
        for place in range(piece.shape[1]):
            given = piece.clone()
            given[0, place] = trained.model.mask_id
            nats -= float(trained.model(given)[0][0, place].log_softmax(-1)[piece[0, place]].detach())
    score = trained.score(text)
    assert score.log_prob == pytest.approx(-nats, abs=1e-3)
    assert (score.kind, score.tokens) == (trained.kind, 17) == ("pseudo-likelihood", 17)
    assert next(one.log_prob for one in trained.score([text, "a"])) == pytest.approx(-nats, abs=1e-3)


@pytest.mark.slow
def test_one_looks_inside_at_the_text_itself(folder, masked):
    run(masked)
    trained = elman.load("run")
    trace = trained.trace("the cat", sites=["layers.0.two-way-attention.weights"])
    assert trace.tokens[:3] == ["t", "h", "e"]
    assert trace.tokens[-1] == "<eos>"
    assert trace["layers.0.two-way-attention.weights"].shape == (8, 1, 8)
    assert "layers.1.feedforward.inner" in trained.sites()


@pytest.mark.slow
def test_what_writes_from_left_to_right_is_refused_with_what_would_work(folder, masked):
    run(masked)
    trained = elman.load("run")
    for ask in (
        lambda: trained.generate("the"),
        lambda: trained.stream("the"),
        lambda: trained.generate_batch(["the"]),
        lambda: generate(trained.model, trained.tokenizer, "the", GenerationConfig(max_tokens=1)),
    ):
        with pytest.raises(ConfigError, match=r"elman score.*left-to-right model, such as --model lstm"):
            ask()


@pytest.mark.slow
def test_both_sides_tell_more_than_the_past_and_verbs_agree(folder):
    """The embedded language, simplified. Catches a model whose layers are causal: it cannot see the right
    side, and is no better than the language allows from the left."""
    language = {"type": "agreement", "train_documents": 8000, "valid_documents": 100, "test_documents": 300}
    language |= {"max_phrases": 1, "words_per_class": 2}
    both = {"bidirectional": {"layer": "lstm", "join": "sum"}}
    recipe = {
        "device": "cpu",
        "data": {"language": language},
        "model": {"type": "masked", "pattern": [both, both], "hidden_size": 64, "positions": "none", "norm": "none"},
        "training": {"max_epochs": 3, "learning_rate": 1e-2, "schedule": "cosine", "warmup_steps": 50},
    }
    *_, result = elman.iterate(recipe, run="run", overrides={"model.mask_share": 0.3})
    found = result.values["test"]
    kind = LANGUAGES["agreement"]
    from_the_left = kind(kind.Config(max_phrases=1, words_per_class=2)).entropy
    assert found["loss"] < 0.7 * from_the_left
    assert found["language"]["agreement"]["accuracy"] >= 0.95
    assert found["language"]["excess"] is None, "the best loss from left to right is no bound here"
    assert isinstance(elman.load("run").model, Masked)
