"""The task of text regression, and its settings."""

from typing import Any

from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import Task, deferred
from elman.pipeline.tasks.regress.data import RegressData
from elman.pipeline.tasks.regress.model import REGRESSORS, RegressModels, Regressor
from elman.pipeline.tasks.regress.prediction import RegressPrediction
from elman.pipeline.tasks.texts import TextSettings


class RegressSettings(TextSettings):
    models, default_model = REGRESSORS, "regressor"
    metrics = ("mse", "mae", "pearson", "spearman", "r2")

    def build_smallest(self, config: Any) -> Regressor:
        return Regressor(config, 2)


@TASKS.register("regress")
class Regress(Task):
    """Regress: a number for a text, such as a rating or a price."""

    settings = RegressSettings()
    Data, Models, Prediction = RegressData, RegressModels, RegressPrediction
    Evaluation = deferred("elman.pipeline.tasks.regress.evaluation:RegressEvaluation")
    Inspection = deferred("elman.pipeline.tasks.regress.prediction:RegressInspection")
    Race = deferred("elman.pipeline.tasks.regress.evaluation:RegressRace")
