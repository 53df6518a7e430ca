"""A source and its target as an encoder-decoder reads them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.batches import together
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of
from elman.inspection.inspected_text import InspectedText
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.translate.data import TranslateData
from elman.pipeline.tasks.translate.prediction import TranslatePrediction

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class TranslateInspection(Inspection):
    data: TranslateData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """Scores stand beside the token before the one they are of; without a target, the model's own output."""
        if target is None:
            target = str(next(TranslatePrediction(self.data).predict(model, [text], recipe, False))["target"])
        tokenizer, source = self.data.target, np.asarray(self.data.source.encode(text))
        if not len(source):
            raise ConfigError(f"{text!r}: has no token to look at")
        written = np.concatenate([tokenizer.encode(target), [tokenizer.eos_id]])
        tokens = {
            "decoder": [tokenizer.token(int(id)) for id in (tokenizer.eos_id, *written[:-1])],
            "encoder": [self.data.source.token(int(id)) for id in source],
        }

        def run(copies: int, pads: int = 0) -> Any:
            batch = together([{"source": source, "target": written}] * copies).padded(pads).to(device_of(model))
            return model(batch.ragged("source"), batch.ragged("target"))

        return InspectedText(model, run, tokens, "next", tokenizer.token, written.tolist(), "encoder.embedding")
