"""Tasks by name: what a recipe's `task` chooses."""

from elman.pipeline.tasks.base import Judged, Prepared, Task
from elman.pipeline.tasks.classify import Classify
from elman.pipeline.tasks.language import LanguageModelling, MaskedModelling
from elman.pipeline.tasks.tag import Tag
from elman.pipeline.tasks.translate import Translate

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (LanguageModelling, Classify, Tag, Translate, MaskedModelling)
}

__all__ = ["TASKS", "Judged", "Prepared", "Task"]
