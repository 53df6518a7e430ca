"""Scores of translations, and of attention where the data knows the alignment."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from elman.batches import collate
from elman.corpus import PairCorpus, PairDocument
from elman.errors import MissingExtra
from elman.evaluation.inference_mode import device_of
from elman.evaluation.significance import MIN_UNITS
from elman.evaluation.translation import paired_bleu, score_translations, why_no_bleu
from elman.inspection.attention import alignment, attention_hits, map_figure
from elman.jsonable import jsonable
from elman.models import EncoderDecoder
from elman.pipeline.tasks.base import EvaluationResult, PreparedData
from elman.pipeline.tasks.examples import ExampleTask
from elman.pipeline.tasks.settings import Settings
from elman.tokenizers import Tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

HEADS = 8  # tokens shown in a plot; more would be too small
ALIGNED = 1000  # pairs whose attention is compared with their alignment


class TranslationScores(ExampleTask):
    """The part of the task that judges: its scores, samples and plots."""

    source: Tokenizer
    target: Tokenizer

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        corpus: PairCorpus = prepared.corpus
        if "valid" not in prepared.stores:  # nothing is chosen
            return {}
        why = why_no_bleu(pair.target for pair in corpus.pairs("valid"))
        found = {"bleu": why, "chrf": why} if why else {}
        if not self._aligned_pairs(model, corpus, "valid"):
            found["attention_hits"] = (
                "no attention has a true alignment: that needs synthetic pairs, tokenized by character"
            )
        return found

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        return self._evaluate(model, prepared, recipe, split)

    def evaluate_quickly(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> EvaluationResult:
        return self._evaluate(model, prepared, _greedy(recipe), "valid", samples=1)

    def _evaluate(
        self, model: Any, prepared: PreparedData, recipe: "Recipe", split: Any, samples: int = 1000
    ) -> EvaluationResult:
        corpus: PairCorpus = prepared.corpus
        pairs = [(pair.text, pair.target) for pair in corpus.pairs(split)]
        answers = self.predict(model, (source for source, _ in pairs), recipe, False)
        outputs, references = [answer["target"] for answer in answers], [target for _, target in pairs]
        found = score_translations(outputs, references, bleu=not why_no_bleu(references), samples=samples)
        scores: Settings = {}
        for name, measure in found.items():
            scores |= {name: measure.value, f"{name}_interval": measure.interval}
            scores |= {f"{name}_signature": measure.signature} if measure.signature else {}
        low, high = scores["exact_match_interval"]
        scores |= {"error_rate": 1 - scores["exact_match"], "error_rate_interval": (1 - high, 1 - low)}
        if aligned := self._aligned_pairs(model, corpus, split):
            hits = attention_hits(self._alignment(model, aligned), [pair.places for pair in aligned])
            scores["attention_hits"] = hits  # share of attention maxima on the right source token
        scores |= {"loss": self.loss(model, prepared.stores[split], recipe), "pairs": len(pairs)}
        exact = np.array([a.strip() == b.strip() for a, b in zip(outputs, references, strict=True)], dtype=np.float64)
        return EvaluationResult(scores, "exact_match", exact, np.ones(len(exact)), outputs, references)

    @staticmethod
    def compare_outputs(first: EvaluationResult, second: EvaluationResult) -> Settings:
        """The paired bootstrap of BLEU (Koehn, 2004), where sacrebleu is installed and pairs are not too few."""
        if first.outputs and second.outputs and first.references and len(first.outputs) >= MIN_UNITS:
            with suppress(MissingExtra):
                return {"bleu": jsonable(paired_bleu(first.outputs, second.outputs, first.references))}
        return {}

    def _aligned_pairs(self, model: Any, corpus: PairCorpus, split: Any) -> list[PairDocument]:
        """Some pairs with a known alignment, if the model has attention over the source."""
        if not _attends(model) or self.source.name != "character":
            return []
        return list(islice((pair for pair in corpus.pairs(split) if pair.places), ALIGNED))

    def _alignment(self, model: Any, pairs: Sequence[PairDocument]) -> Tensor:
        source, target = self.source, self.target
        written = [np.append(target.encode(pair.target), target.eos_id) for pair in pairs]
        rows = [{"source": source.encode(pair.text), "target": ids} for pair, ids in zip(pairs, written, strict=True)]
        batch = collate(rows).to(device_of(model))
        return alignment(model, batch.ragged("source"), batch.ragged("target"))

    def plots(self, model: Any, prepared: PreparedData, recipe: "Recipe", folder: Path) -> None:
        """Attention over the source for a target of the validation data."""
        corpus: PairCorpus = prepared.corpus
        if not _attends(model) or "valid" not in prepared.stores:
            return
        pair = next(corpus.pairs("valid"))
        source = [self.source.token(int(id)) for id in self.source.encode(pair.text)]
        target = [self.target.token(int(id)) for id in self.target.encode(pair.target)]
        if source and target:
            weights = self._alignment(model, [pair])[0]
            figure = map_figure(weights[: len(target), :HEADS], source, target, recipe.name)
            figure.save_images(folder / "attention")

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe", quick: bool = False) -> list[str]:
        return super().samples(model, prepared, _greedy(recipe) if quick else recipe, quick)


def _greedy(recipe: "Recipe") -> "Recipe":
    """With the least effort of search, for use during training."""
    search = recipe.search.model_copy(update={"beam_size": 1, "num_best": 0, "choose": "probability"})
    return recipe.model_copy(update={"search": search})


def _attends(model: Any) -> bool:
    """Whether the model is autoregressive with attention over the source."""
    decoder = model.decoder if isinstance(model, EncoderDecoder) else None
    return getattr(decoder, "attention", None) is not None or bool(getattr(decoder, "looking", None))
