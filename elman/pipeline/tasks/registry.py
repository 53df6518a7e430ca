"""Tasks by name: a built-in task is imported when its name is first used, a user's when its file is read."""

from collections.abc import Callable, Iterator
from copy import copy
from importlib import import_module
from typing import Any

from elman.pipeline.tasks.base import Task
from elman.registry import Registered, Registry


class TaskRegistry(Registry[Task]):
    """`@TASKS.register("classify")` on a subclass of `Task`; `modules` holds the module of each built-in task."""

    def __init__(self, modules: dict[str, str]):
        super().__init__("task")
        self._modules = modules

    def register(self, name: str) -> Callable[[Registered], Registered]:
        add = super().register(name)

        def named(task: Registered) -> Registered:
            add(task)
            some: Any = task
            some.settings = copy(some.settings)  # a subclass must not rename its parent's settings
            some.settings.task = name
            return task

        return named

    def __getitem__(self, name: str) -> type[Task]:
        if name not in self._items and name in self._modules:
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
            self[name]
        return {name: line for name in self for line in [super(TaskRegistry, self).describe()[name]]}
