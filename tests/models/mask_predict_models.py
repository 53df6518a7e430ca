"""Small mask-predict models of several kinds, and rows for them."""

from typing import Any

import pytest
import torch
from torch import nn

from elman.batches import Ragged
from elman.models import MaskPredict, MaskPredictConfig

WORDS, EOS = 9, 0
MODELS: dict[str, dict[str, Any]] = {
    "the default": {},
    "one table": {"shared_embeddings": True, "decoder": {"positions": "sinusoidal", "output_bias": False}},
    "recurrent": {
        "encoder": {"pattern": ["gru"], "num_layers": 0},
        "decoder": {
            "pattern": [{"bidirectional": {"join": "sum"}}],
            "num_layers": 0,
            "context": ["input", "output"],
            "attention": {"num_heads": 2},
            "tied_embeddings": False,
        },
    },
}
every_model = pytest.mark.parametrize("recipe", MODELS)


def build(recipe: str = "the default", seed: int = 0, **settings: Any) -> MaskPredict:
    torch.manual_seed(seed)
    whole: dict[str, Any] = {"length_range": 3, **MODELS[recipe], **settings}
    for part, layers in (("encoder", 2), ("decoder", 3)):
        whole[part] = {"hidden_size": 8, "num_layers": layers, **whole.get(part, {})}
    model = MaskPredict(MaskPredictConfig.make(whole, where="model"), WORDS, WORDS, EOS).double().eval()
    if model.decoder.output_bias is not None:
        nn.init.normal_(model.decoder.output_bias)
    return model


def ragged(*rows: list[int]) -> Ragged:
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return Ragged(torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.long), lengths)


def row_of(rows: Ragged, row: int) -> Ragged:
    return Ragged(rows.values[[row], : int(rows.lengths[row])], rows.lengths[[row]])


def noisy(rows: Ragged) -> Ragged:
    return rows._replace(values=torch.where(rows.mask(), rows.values, 5))


SOURCE = ragged([1, 2, 3, 4, 5, EOS], [6, 7, EOS], [8, EOS])
WORDS_ONLY = ragged([3, 1, 8], [4, 4, 2, 7, 1], [])


def model_mask() -> int:
    """The mask is an added embedding, after all tokens."""
    return WORDS
