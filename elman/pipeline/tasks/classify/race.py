"""A race of classifiers."""

from typing import TYPE_CHECKING

from elman.pipeline.families import STACKS
from elman.pipeline.tasks.base import InferenceWork, Measure, PreparedData
from elman.pipeline.tasks.examples import ExampleRace
from elman.pipeline.tasks.inference import CONTEXTS, stack_state
from elman.pipeline.tasks.settings import Settings

if TYPE_CHECKING:
    from elman.pipeline.trained_model import TrainedModel


class TextRace(ExampleRace):
    """Of models that read a text into one vector: stacks of one width."""

    unit = "texts"
    entrants = ("rnn", "gru", "lstm", "convolution", "attention", "mingru")

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return STACKS.get(name)

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        work = super().inference_work(trained, prepared, split)
        if not trained.model.causal:
            return work
        return work._replace(state_after=stack_state(trained.model), contexts=CONTEXTS)


class ClassifyRace(TextRace):
    measures = (Measure("accuracy", False, "of the labels right", percent=True),)
    figures = ("loss", "accuracy", "macro_f1")
    usage_note = (
        "A classifier writes nothing; answers are texts a second, one at a time. State bytes are what its layers "
        "carry on after so many tokens; layers that see both sides carry nothing on."
    )
