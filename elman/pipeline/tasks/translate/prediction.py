"""The target of each source, by search; the log-probability of given targets; and both as a model reads them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.batches import collate
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.inspection.inspected_text import InspectedText
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.examples import ExamplePrediction, chunks, length_batches
from elman.pipeline.tasks.forced_scoring import ForcedScorer, PairScore, has_log_probs
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.search import format_candidates, search_targets
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.translate.data import TranslateData

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class TranslatePrediction(ExamplePrediction):
    data: TranslateData

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        search, first = recipe.search.with_seed(), 0
        for some in chunks(numbered(lines, _source_and_target)):
            texts = [source for source, _ in some]
            scores = self._scores_of_given(model, some, recipe)
            rows = [{"source": np.asarray(ids)} for ids in self.data.source.encode_batch(texts)]
            self.count_long_lines(model, rows)
            answers = [format_candidates([], probabilities)] * len(rows)
            asked = [place for place, text in enumerate(texts) if text.strip()]  # no model was trained on empty sources
            with inference_mode(model):
                size = recipe.evaluation.batch_size
                for indices, batch in length_batches([rows[place] for place in asked], "source", size, model):
                    numbers = [first + asked[index] for index in indices]
                    source, target = batch.ragged("source"), self.data.target
                    found = search_targets(model, source, target, search, probabilities, numbers)
                    for index, answer in zip(indices, found, strict=True):
                        answers[asked[index]] = answer
            for number, (text, answer, score) in enumerate(zip(texts, answers, scores, strict=True), start=first + 1):
                numbering = {"number": number} if probabilities else {}
                yield {**numbering, "source": text, **answer, **({"given": score.plain()} if score else {})}
            first += len(some)

    def _scores_of_given(
        self, model: Any, lines: Sequence[tuple[str, str | None]], recipe: "Recipe"
    ) -> list[PairScore | None]:
        """Scores of targets given with their sources, if the model defines them."""
        pairs = [(source, target) for source, target in lines if target is not None and has_log_probs(model)]
        if not pairs:
            return [None] * len(lines)
        scores = iter(self._scorer(model, recipe).score_batch(pairs))
        return [None if target is None else next(scores) for _, target in lines]

    def _scorer(self, model: Any, recipe: "Recipe") -> ForcedScorer:
        return ForcedScorer(model, self.data.source, self.data.target, recipe.evaluation.batch_size)

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> Iterator[PairScore]:
        return self._scorer(model, recipe).scores(texts)

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> Iterator[PairScore]:
        raise ConfigError("pairs are scored many together, not as they come: leave --stream out, or use .score()")

    def format(self, answer: Settings) -> str:
        if "candidates" in answer:
            return "\n".join(
                f"{answer['number']}\t{one['rank']}\t{one['score']:.4f}\t{one['log_prob']:.4f}\t{one['target']}"
                for one in answer["candidates"]
            )
        return str(answer["target"])


def _source_and_target(line: Any) -> tuple[str, str | None]:
    """A source, and its optional target."""
    target = line.get("target") if isinstance(line, dict) else None
    return text_of(line, "source", "text"), target if isinstance(target, str) else None


class TranslateInspection(Inspection):
    data: TranslateData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """Each score is shown at the token before the scored one; the default target is the model's output."""
        if target is None:
            target = str(next(TranslatePrediction(self.data).predict(model, [text], recipe, False))["target"])
        tokenizer, source = self.data.target, np.asarray(self.data.source.encode(text))
        if not len(source):
            raise ConfigError(f"{text!r}: has no tokens")
        written = np.concatenate([tokenizer.encode(target), [tokenizer.eos_id]])
        tokens = {
            "decoder": [tokenizer.token(int(id)) for id in (tokenizer.eos_id, *written[:-1])],
            "encoder": [self.data.source.token(int(id)) for id in source],
        }

        def run(copies: int, pads: int = 0) -> Any:
            batch = collate([{"source": source, "target": written}] * copies).padded(pads).to(device_of(model))
            return model(batch.ragged("source"), batch.ragged("target"))

        return InspectedText(model, run, tokens, "next", tokenizer.token, written.tolist(), "encoder.embedding")
