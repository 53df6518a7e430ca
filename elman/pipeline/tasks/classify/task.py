"""The task of classification, and its settings."""

from typing import Any

from elman.models import CLASSIFIERS, Classifier
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import Task, deferred
from elman.pipeline.tasks.classify.data import ClassifyData, ClassifyModels
from elman.pipeline.tasks.classify.prediction import ClassifyPrediction
from elman.pipeline.tasks.texts import TextSettings


class ClassifySettings(TextSettings):
    models, default_model = CLASSIFIERS, "classifier"
    metrics = ("accuracy", "micro_f1", "macro_f1", "calibration_error")

    def build_smallest(self, config: Any) -> Classifier:
        return Classifier(config, 2, 2)


@TASKS.register("classify")
class Classify(Task):
    """Classify: which label, or which labels, a text has."""

    settings = ClassifySettings()
    Data, Models, Prediction = ClassifyData, ClassifyModels, ClassifyPrediction
    Evaluation = deferred("elman.pipeline.tasks.classify.evaluation:ClassifyEvaluation")
    Inspection = deferred("elman.pipeline.tasks.classify.prediction:ClassifyInspection")
    Race = deferred("elman.pipeline.tasks.classify.evaluation:ClassifyRace")
