"""An n-gram model as one ARPA file."""

from pathlib import Path

from elman import files
from elman.errors import ConfigError
from elman.export.base import Weights, only_fp32
from elman.models.ngram import NGram, write_arpa
from elman.pipeline.trained_model import TrainedModel


def write_arpa_file(trained: TrainedModel, weights: Weights, target: Path) -> list[str]:
    """Writes the file; returns notes for the user."""
    only_fp32("arpa", weights)
    if not isinstance(trained.model, NGram):
        raise ConfigError("only n-gram models have an ARPA file; export others with --format hugging-face or torch")
    files.make_folder(target.parent)
    tokens = trained.tokenizer
    with files.replacing(target) as beside:
        write_arpa(trained.model, [tokens.token(id) for id in range(tokens.vocab_size)], beside, target.suffix == ".gz")
    back = f"elman import {target} reads it" if tokens.name in ("word", "character") else "kenlm reads it"
    return [f"it is an n-gram model of {tokens.name} tokens; {back}"]
