"""A race of classifiers."""

from elman.pipeline.tasks.base import Measure
from elman.pipeline.tasks.texts import TextRace


class ClassifyRace(TextRace):
    measures = (Measure("accuracy", False, "of the labels right", percent=True),)
    figures = ("loss", "accuracy", "macro_f1")
    usage_note = f"A classifier writes nothing. {TextRace.usage_note}"
