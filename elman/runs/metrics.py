"""The log of a run: one JSON object per line, only ever added to, cut back when a resumed run goes over old ground."""

import json
import math
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from elman.errors import RunError
from elman.runs import files
from elman.runs.files import RunWarning


class Metrics:
    """Appends to the log at `path`; a last line torn by a crash is dropped on opening."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.exists():
            files.append(self.path, b"")
            files.sync_folder(self.path.parent)
        data = _read(self.path)
        whole = _whole(data)
        if whole < len(data):
            files.truncate(self.path, whole)

    def write(self, record: dict[str, Any]) -> None:
        """One line, handed to the system at once. Numbers that are not finite become null: JSON has none."""
        before = self._size()
        try:
            files.append(self.path, (json.dumps(_plain(record), allow_nan=False) + "\n").encode())
        except RunError:
            with suppress(RunError):
                files.truncate(self.path, before)  # else the next line would be glued to half of this one
            raise

    def position(self) -> int:
        """Bytes so far, synced, so that a checkpoint never knows more than the log."""
        files.sync_file(self.path)
        return self._size()

    def truncate_to(self, position: int) -> None:
        """Forget what came after a checkpoint, so that a resumed run's log equals that of an uninterrupted one."""
        before = _read(self.path)[:position]
        if _whole(before) < position:
            raise RunError(
                f"{self.path}: the checkpoint was saved at byte {position}, which is not the end of a line here; "
                "the log was changed: put it back, or start another --run"
            )
        files.truncate(self.path, position)

    def _size(self) -> int:
        return os.path.getsize(self.path)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """All records. A torn last line is left out with a `RunWarning`; anything else that is wrong is a RunError."""
    path = Path(path)
    data = _read(path)
    whole = _whole(data)
    records = []
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise RunError(f"{path}, line {number}: a record is a JSON object, not {type(record).__name__}")
        records.append(record)
    if whole < len(data):
        warnings.warn(f"{path}: the last line is torn and was left out", RunWarning, stacklevel=2)
    return records


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot read the metrics: {error.strerror}") from error


def _whole(data: bytes) -> int:
    """How many bytes are complete lines."""
    return data.rfind(b"\n") + 1


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
