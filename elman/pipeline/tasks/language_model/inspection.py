"""A text as a language model reads it."""

from typing import TYPE_CHECKING, Any

from elman.inspection.inspected_text import InspectedText, inspect_language_model, text_run
from elman.models import is_masked
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.language_model.data import LanguageData

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class LanguageInspection(Inspection):
    data: LanguageData
    shortest_text = ""

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """The start, `<eos>` as a rule, stands before the text; for a masked model `<eos>` after it."""
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
