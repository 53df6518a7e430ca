"""A run folder: everything one training leaves behind, under names that every other part of the house knows.

config.yaml  tokenizer.json  metrics.jsonl  environment.json  samples/  plots/  data/  best/  last/
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elman.errors import RunError
from elman.runs import files
from elman.runs.checkpoint import Shelf
from elman.runs.lock import locked

FOLDERS = ("samples", "plots", "data", "best", "last")


class Run:
    """The places in a run folder. `Run.create` makes one, `Run.open` finds one; the constructor only names paths."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.config = self.folder / "config.yaml"
        self.tokenizer = self.folder / "tokenizer.json"
        self.metrics = self.folder / "metrics.jsonl"
        self.environment = self.folder / "environment.json"
        self.samples, self.plots, self.data, best, last = (self.folder / name for name in FOLDERS)
        self.best, self.last = Shelf(best), Shelf(last)

    @classmethod
    def create(cls, folder: str | Path, config_yaml: str, environment: dict[str, Any]) -> "Run":
        """A new run; a folder in use is refused. A creation cut short by a crash is simply done again."""
        run = cls(folder)
        run._refuse_used()
        files.make_folder(run.folder)
        with run.lock():
            run._refuse_used()  # again: another process may have been first
            files.atomic_write(run.environment, (json.dumps(environment, indent=1) + "\n").encode())
            for name in FOLDERS:
                files.make_folder(run.folder / name)
            files.atomic_write(run.config, config_yaml.encode())  # last: it makes the folder a run
        return run

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        run = cls(folder)
        if not run.folder.is_dir():
            raise RunError(f"{folder}: no such run folder")
        if not run.config.is_file():
            raise RunError(f"{folder}: not a run folder, since it has no {run.config.name}")
        return run

    @property
    def shelf(self) -> Shelf:
        """Where the model to use stands: the best, or the last where none was validated."""
        return self.last if self.best.empty else self.best

    @contextmanager
    def lock(self) -> Iterator[None]:
        """For whoever writes: RunError, naming the holder, when another process does. Clears up after crashes."""
        with locked(self.folder / "lock") as alone:
            if alone:
                for folder in (self.folder, *(self.folder / name for name in FOLDERS)):
                    files.clean_leftovers(folder)
            yield

    def _refuse_used(self) -> None:
        if not self.folder.is_dir():
            return
        if self.config.exists():
            raise RunError(f"{self.folder}: holds a run already; continue it with --resume, or give another --run")
        unfinished = {self.environment.name, "lock"}
        for path in self.folder.iterdir():
            empty = path.name in FOLDERS and path.is_dir() and not any(path.iterdir())
            if not empty and path.name not in unfinished and not path.name.startswith(files.ASIDE):
                raise RunError(f"{self.folder}: not empty ({path.name}) and not a run; give another --run")
