"""A race of masked language models."""

from elman.pipeline.tasks.base import Measure
from elman.pipeline.tasks.language_model.race import LanguageRace
from elman.pipeline.tasks.settings import Settings


class MaskedRace(LanguageRace):
    entrants = ("gru", "lstm", "attention")
    measures = (Measure("loss", True, "nats per hidden token"),)
    usage_note = "A masked model fills gaps with both sides in sight: it writes no text and carries no state on."

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return None
