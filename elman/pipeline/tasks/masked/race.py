"""A race of masked language models."""

from elman.pipeline.tasks.base import Measure
from elman.pipeline.tasks.language_model.race import LanguageRace
from elman.pipeline.tasks.settings import Settings


class MaskedRace(LanguageRace):
    entrants = ("gru", "lstm", "attention")
    measures = (Measure("loss", True, "nats per hidden token"),)
    usage_note = (
        "A masked model fills gaps from the context on both sides: it generates no text and has no recurrent state."
    )

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return None
