"""Every registered name, for listings and docs."""

from elman.cells import CELLS
from elman.corpus.synthetic import LANGUAGES
from elman.layers import LAYERS
from elman.models import MODELS
from elman.tokenizers import TOKENIZERS


def every_name() -> dict[str, dict[str, str]]:
    kinds = {"cells": CELLS, "layers": LAYERS, "models": MODELS, "tokenizers": TOKENIZERS, "languages": LANGUAGES}
    return {kind: registry.describe() for kind, registry in kinds.items()}  # type: ignore[attr-defined]
