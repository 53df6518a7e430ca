"""Tasks by name, what a recipe's `task` chooses: a built-in one is imported when its name is first used, a user's when
its file is read."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from elman.errors import ConfigError
from elman.pipeline.tasks.base import EvaluationResult, PreparedData, Task
from elman.pipeline.tasks.race import Measure
from elman.registry import Registered, Registry


class TaskRegistry(Registry[Task]):
    """`@TASKS.register("classify")` on a subclass of `Task`; `modules` holds the module of each built-in task."""

    def __init__(self, modules: dict[str, str]):
        super().__init__("task")
        self._modules = modules

    def register(self, name: str) -> Callable[[Registered], Registered]:
        add = super().register(name)

        def checked(task: Registered) -> Registered:
            if issubclass(task, Task) and (missing := task.missing()):
                raise ConfigError(
                    f"task {name!r}: class {task.__name__} has no {', '.join(missing)}; the class that it starts from "
                    "declares them, each with what it is for"
                )
            return add(task)

        return checked

    def __getitem__(self, name: str) -> type[Task]:
        if isinstance(name, str) and name not in self._items and name in self._modules:
            import_module(self._modules[name])
        return super().__getitem__(name)

    def unknown(self, name: str, also: Any = ()) -> Any:
        return super().unknown(name, [*also, *self._modules])

    def __contains__(self, name: object) -> bool:
        return name in self._modules or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        """Built-in tasks in the order of their list, then users' tasks."""
        return iter(dict.fromkeys([*self._modules, *self._items]))

    def __len__(self) -> int:
        return len({*self._modules, *self._items})

    def describe(self) -> dict[str, str]:
        for name in self:
            self[name]  # imports it
        return super().describe()


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

__all__ = ["DEFAULT", "TASKS", "EvaluationResult", "Measure", "PreparedData", "Task"]
