"""A race of taggers."""

from elman.pipeline.tasks.base import Measure
from elman.pipeline.tasks.examples import ExampleRace
from elman.pipeline.tasks.settings import TRANSFORMER, Settings


class TagRace(ExampleRace):
    unit = "words"
    entrants = ("rnn", "gru", "lstm", "convolution", "attention")
    measures = (
        Measure("f1", False, "F1 of entities", percent=True),
        Measure("accuracy", False, "of the tags right", percent=True),
    )
    figures = ("loss", "accuracy", "f1")
    usage_note = (
        "A tagger writes nothing, and sees both sides of each word, so that it carries no state on; answers are "
        "sentences a second, one at a time."
    )

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return {"type": TRANSFORMER} if name == "attention" else None
