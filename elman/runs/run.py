"""A run folder: the files of one training run.

config.yaml  tokenizer.json  manifest.json  metrics.jsonl  environment.json  samples/  plots/  data/  best/  last/
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elman import files
from elman.errors import RunError
from elman.runs.checkpoint import NAME, Checkpoint, CheckpointFolder
from elman.runs.file_manifest import FileManifest
from elman.runs.lock import file_lock, is_held
from elman.runs.manifest import SCHEMA

FOLDERS = ("samples", "plots", "data", "best", "last")
HAS_MANIFEST = {"manifest": SCHEMA}  # in the facts of a checkpoint: the run has one, so that its loss is noticed


class Run:
    """Paths in a run folder. `Run.create` makes one, `Run.open` checks an existing one."""

    chosen: Path | None = None  # the checkpoint to use instead of the newest of the best

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.config = self.folder / "config.yaml"
        self.tokenizer = self.folder / "tokenizer.json"
        self.metrics = self.folder / "metrics.jsonl"
        self.environment = self.folder / "environment.json"
        self.manifest = FileManifest(self.folder)
        self._lock = self.folder / "lock"
        self.samples, self.plots, self.data, best, last = (self.folder / name for name in FOLDERS)
        self.best, self.last = CheckpointFolder(best), CheckpointFolder(last)

    @classmethod
    def create(cls, folder: str | Path, config_yaml: str, environment: dict[str, Any]) -> "Run":
        """A new run; a folder in use is an error. An interrupted creation can be repeated."""
        run = cls(folder)
        run._refuse_used()
        files.make_folder(run.folder)
        with run.lock():
            run._refuse_used()  # again: another process may have created it meanwhile
            files.atomic_write(run.environment, (json.dumps(environment, indent=1) + "\n").encode())
            for name in FOLDERS:
                files.make_folder(run.folder / name)
            run.manifest.write(run.config.name, config_yaml.encode())  # last: its presence makes the folder a run
        return run

    @classmethod
    def at(cls, place: str | Path) -> "Run":
        """The run in a folder; that of a checkpoint such as `best/step-00000100`, with this checkpoint to use."""
        folder = Path(place)
        if not (NAME.fullmatch(folder.name) and folder.parent.name in FOLDERS):
            return cls(folder)
        run = cls(folder.parent.parent)
        run.chosen = folder
        return run

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        run = cls.at(folder)
        if not run.folder.is_dir():
            raise RunError(f"{folder}: no such run folder")
        if not run.config.exists():
            raise RunError(f"{folder}: not a run folder: it has no {run.config.name}")
        files.require_plain(run.folder, links=True)
        run.manifest.check()
        return run

    def load(self) -> Checkpoint:
        """The weights of the model to use."""
        checkpoint = self.shelf.load(training=False, only=self.chosen)
        self._require_manifest(checkpoint)
        return checkpoint

    def adopt(self) -> None:
        """Mends a run before it goes on: makes empty folders that were not copied with it, and lists the files of one
        without a manifest, which an earlier version made."""
        for name in FOLDERS:
            files.make_folder(self.folder / name)
        if not self.manifest.exists:
            if not self.last.empty:
                self._require_manifest(self.last.load())
            self.manifest.accept()

    def tidy(self) -> None:
        """Removes the remains of crashes, unless a process trains here."""
        if not is_held(self._lock):
            with self.lock():
                pass

    def _require_manifest(self, checkpoint: Checkpoint) -> None:
        if checkpoint.facts.keys() & HAS_MANIFEST and not self.manifest.exists:
            raise RunError(
                f"{self.manifest.path}: missing, so nothing says whether the run's files were changed; restore it, or "
                f"accept them as they are with: elman accept {self.folder}"
            )

    @property
    def shelf(self) -> CheckpointFolder:
        """Checkpoints of the model to use: the best one, or the last one without validation."""
        if self.chosen:
            return CheckpointFolder(self.chosen.parent)
        return self.last if self.best.empty else self.best

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclusive write lock; RunError names the holder. Removes the remains of crashes. A folder with links in it,
        through which other files would be written, is an error."""
        files.require_plain(self.folder)
        with file_lock(self._lock) as alone:
            if alone:
                for folder in (self.folder, *(self.folder / name for name in FOLDERS)):
                    files.clean_leftovers(folder)
            yield

    def _refuse_used(self) -> None:
        if not self.folder.is_dir():
            return
        if self.config.exists():
            raise RunError(f"{self.folder}: contains a run already; continue it with --resume, or use another --run")
        unfinished = {self.environment.name, self.manifest.path.name, self._lock.name}
        for path in self.folder.iterdir():
            empty = path.name in FOLDERS and path.is_dir() and not any(path.iterdir())
            if not empty and path.name not in unfinished and not path.name.startswith(files.ASIDE):
                raise RunError(f"{self.folder}: not empty ({path.name}) and not a run; use another --run")
