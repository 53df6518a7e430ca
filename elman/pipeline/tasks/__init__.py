"""Tasks by name: what a recipe's `task` chooses."""

from elman.pipeline.tasks.base import EvaluationResult, PreparedData, Task
from elman.pipeline.tasks.registry import TaskRegistry

TASKS = TaskRegistry(
    {
        "language-model": "elman.pipeline.tasks.language_model.task",
        "classify": "elman.pipeline.tasks.classify.task",
        "tag": "elman.pipeline.tasks.tag.task",
        "translate": "elman.pipeline.tasks.translate.task",
        "masked": "elman.pipeline.tasks.masked.task",
        "regress": "elman.pipeline.tasks.regress.task",
    }
)
DEFAULT = next(iter(TASKS))  # of a recipe that names no task

__all__ = ["DEFAULT", "TASKS", "EvaluationResult", "PreparedData", "Task"]
