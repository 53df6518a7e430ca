"""A trained run against a text: the run's own held-out split, or any other text read the same way."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elman.batches import TokenStore
from elman.corpus import open_corpus
from elman.errors import ConfigError
from elman.pipeline.prepare import Prepared, corpus_of
from elman.pipeline.results import score_split
from elman.pipeline.trained import load


def evaluate_run(
    folder: str | Path,
    *,
    data: Sequence[str] | None = None,
    split: str | None = None,
    lanes: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Scores as plain values; `data` is read with the run's own settings for documents and tokens."""
    trained = load(folder, device)
    recipe = trained.recipe
    if lanes is not None:
        recipe = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"lanes": lanes})})
    if data:
        if split is not None:
            raise ConfigError("give either --data or --split: a text has no splits")
        alone = {
            "train": list(data),
            "valid": None,
            "test": None,
            "language": None,
            "valid_fraction": 0.0,
            "test_fraction": 0.0,
        }
        corpus = open_corpus(recipe.data.model_copy(update=alone), trained.tokenizer.name)
        split = "train"
    elif recipe.data.train == []:
        raise ConfigError("the run was imported and has no text of its own; give one with --data")
    else:
        corpus = corpus_of(recipe)
        split = split or ("test" if "test" in corpus.splits() else "valid")
        if split not in corpus.splits():
            raise ConfigError(f"the run has no split {split!r}; it has {', '.join(corpus.splits())}")
    with tempfile.TemporaryDirectory() as place:
        store = TokenStore.build(corpus.documents(split), trained.tokenizer, Path(place), split)  # type: ignore[arg-type]
        prepared = Prepared(corpus, trained.tokenizer, {split: store})
        scores = score_split(trained.model, prepared, recipe, split)
        return {**scores, "repairs": prepared.repairs()}
