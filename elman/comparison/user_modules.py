"""Users' Python files that register cells, layers, models or tasks: imported here and in every worker process."""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from elman.errors import ConfigError, ElmanError, line_of
from elman.layers.laws import GIVEN


def read_modules(paths: Iterable[str | Path]) -> None:
    """Import each file once, under a module name that cannot clash with another."""
    for path in map(Path, paths):
        name = f"{GIVEN}{path.resolve()}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ConfigError(
                f"{path}: no file of Python that could be read; give one that registers a cell, a layer or a task"
            )
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            what = str(error) if isinstance(error, ElmanError) else f"{type(error).__name__}: {error}"
            raise ConfigError(f"{path}: {what}{'' if isinstance(error, SyntaxError) else line_of(error)}") from error


def read_already() -> list[Path]:
    """The files that this process has read, for those that it starts."""
    return [Path(name.removeprefix(GIVEN)) for name in sys.modules if name.startswith(GIVEN)]
