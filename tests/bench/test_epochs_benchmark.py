"""The epochs benchmark: without dropout elman and plain torch train identically."""

import random
from pathlib import Path

import pytest

from benchmarks import epochs

WORDS = ["the", "a", "cat", "dog", "bird", "house", "tree", "sat", "ran", "saw", "on", "and", "big", "small", "old"]
TRAINING = {"batch_size": 4, "sequence_length": 12, "jitter": True, "optimizer": "sgd", "learning_rate": 2.0}
TRAINING |= {"clip_grad_norm": 0.25, "schedule": "cosine", "warmup_steps": 3}


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_elman_and_plain_torch_reach_the_same_perplexity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropout: float
) -> None:
    """Catches: rates of another step; weights that were not given back."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(0)
    for name, lines in (("train", 400), ("valid", 80)):
        text = "\n".join(" ".join(dice.choices(WORDS, range(len(WORDS), 0, -1), k=8)) for _ in range(lines))
        Path(f"{name}.txt").write_text(text)
    pattern = [{"lstm": {"hidden_size": 12}}, {"lstm": {"hidden_size": 8}}]
    recipe = {
        "data": {"train": "train.txt", "valid": "valid.txt", "document": "line", "boundary": "carry"},
        "tokenizer": "word",
        "model": {"pattern": pattern, "embedding_size": 8, "dropout": dropout, "weight_dropout": dropout},
        "training": TRAINING,
        "device": "cpu",
    }
    found = epochs.measure(recipe, 3, {})
    ours, plain = ([one["perplexity"] for one in found[name]["epochs"]] for name in ("elman", "plain torch"))
    assert len(ours) == 3
    assert ours[-1] < len(WORDS)
    assert ours == pytest.approx(plain, rel=0.05 if dropout else 1e-4)
    assert found["perplexity_ratio"] == pytest.approx(ours[-1] / plain[-1])
    assert found["times_faster"] > 0
