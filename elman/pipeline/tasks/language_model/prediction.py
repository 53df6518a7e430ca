"""The likeliest next tokens of a line, tokens for its gaps, log-probabilities, and a text as a model reads it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from elman.errors import DataError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.score import LENGTH, Score, score_texts
from elman.generation import StreamScorer
from elman.inspection.inspected_text import InspectedText, inspect_language_model, text_run
from elman.models import is_masked
from elman.pipeline.tasks.base import Inspection, Prediction
from elman.pipeline.tasks.language_model.data import LanguageData
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.position_checks import count_longer, learned_positions, length_warning
from elman.pipeline.tasks.settings import Settings

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

TOP = 5  # most likely tokens of an answer
GAP = "<mask>"


class LanguagePrediction(Prediction):
    data: LanguageData

    def __init__(self, data: LanguageData):
        super().__init__(data)
        self._long_lines = 0
        self._positions: int | None = None

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """The most likely next tokens of each line; for a masked model, the tokens of its gaps."""
        masked = is_masked(model)
        for text in numbered(lines, _text_with_gap if masked else _text):
            with inference_mode(model):
                yield self._fill(model, text) if masked else self._next(model, text)

    def _next(self, model: Any, text: str) -> Settings:
        tokenizer = self.data.tokenizer
        ids = torch.tensor([[tokenizer.start_id, *tokenizer.encode(text)]], device=device_of(model))
        logits, _ = model(ids)
        return {"text": text, "next": self._likeliest(logits[0, -1])}

    def _fill(self, model: Any, text: str) -> Settings:
        """Each gap is predicted while the others are still masked."""
        tokenizer = self.data.tokenizer
        ids: list[int] = []
        gaps: list[int] = []
        for number, piece in enumerate(text.split(GAP)):
            if number:
                gaps.append(len(ids))
                ids.append(model.mask_id)
            ids += tokenizer.encode(piece.strip() if tokenizer.name == "word" else piece).tolist()
        tokens = torch.tensor([[*ids, tokenizer.eos_id]], device=device_of(model))
        self._positions = learned_positions(model)
        self._long_lines += count_longer([tokens.shape[1]], self._positions)
        features, _ = model.features(tokens, None, None)
        fillings = [self._likeliest(model.logits(features[0, gap])) for gap in gaps]
        for gap, filling in zip(gaps, fillings, strict=True):
            ids[gap] = filling[0]["id"]
        return {"text": text, "filled": tokenizer.decode(ids), "gaps": fillings}

    def _likeliest(self, logits: torch.Tensor) -> list[Settings]:
        chances, ids = logits.float().softmax(-1).topk(min(TOP, logits.shape[-1]))
        pairs = zip(ids.tolist(), chances.tolist(), strict=True)
        return [{"token": self.data.tokenizer.token(id), "id": id, "probability": chance} for id, chance in pairs]

    def format(self, answer: Settings) -> str:
        if "filled" in answer:
            return str(answer["filled"])
        return "\t".join(f"{one['token']} {one['probability']:.4f}" for one in answer["next"])

    def pop_warnings(self) -> list[str]:
        count, self._long_lines = self._long_lines, 0
        return length_warning(count, "lines are", self._positions)

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> Iterator[Score]:
        return score_texts(model, self.data.tokenizer, _texts(texts), _piece(model, recipe))

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> Iterator[Score]:
        losses = None if is_masked(model) else StreamScorer(model, config, listen)
        return score_texts(model, self.data.tokenizer, _texts(texts), _piece(model, recipe), rows=1, losses=losses)


def _piece(model: Any, recipe: "Recipe") -> int:
    """Number of tokens scored at once: for a masked model, at most the sequence length of its training."""
    return recipe.training.sequence_length if is_masked(model) else LENGTH


def _texts(lines: Iterable[Any]) -> Iterator[str]:
    return numbered(lines, _text)


def _text(line: Any) -> str:
    return text_of(line, "text")


def _text_with_gap(line: Any) -> str:
    text = _text(line)
    if GAP not in text:
        raise DataError(f"a masked model fills gaps, but there is none in {text!r}", remedy=f"write {GAP} for each")
    return text


class LanguageInspection(Inspection):
    data: LanguageData
    shortest_text = ""

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """The text after a start token, usually `<eos>`; for a masked model, before `<eos>`."""
        tokenizer, own = self.data.tokenizer, self._encode(text)
        if not is_masked(model):
            return inspect_language_model(model, own, tokenizer.token, tokenizer.start_id)
        ids = [*own, tokenizer.eos_id]
        tokens = {"": [tokenizer.token(id) for id in ids]}
        caution = "The model sees the token whose own score this is: nothing was hidden from it."
        return InspectedText(model, text_run(model, ids), tokens, "own", tokenizer.token, ids, caution=caution)

    def _encode(self, text: str) -> list[int]:
        """Where a line break is no token, each line is a document, with `<eos>` between two."""
        tokenizer = self.data.tokenizer
        line_break = tokenizer.encode("\n").tolist()
        if line_break and tokenizer.unk_id not in line_break:
            return tokenizer.encode(text).tolist()
        lines = [tokenizer.encode(line).tolist() for line in text.split("\n") if line]
        return [id for number, line in enumerate(lines) for id in ([tokenizer.eos_id] * bool(number) + line)]
