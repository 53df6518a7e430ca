"""The metrics log of a run: append-only JSON lines, truncated when a resumed run goes back to a checkpoint."""

import json
import os
import warnings
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from elman import files
from elman.errors import RunError
from elman.files import RunWarning
from elman.jsonable import jsonable
from elman.limits import limits
from elman.untrusted import read_bytes

Position = tuple[int, str]  # size, and hash of the log up to there


class MetricsLog:
    """Appends to the log at `path`; removes an incomplete last line on opening."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.exists():
            files.append(self.path, b"")
            files.sync_folder(self.path.parent)
        data = _read(self.path)
        complete = _complete(data)
        if complete < len(data):
            files.truncate(self.path, complete)
        self._digest = sha256(data[:complete])

    def write(self, record: dict[str, Any]) -> None:
        """Appends one line, unbuffered. Numbers that are not finite become null."""
        before = self._size()
        line = (json.dumps(jsonable(record), allow_nan=False) + "\n").encode()
        try:
            files.append(self.path, line)
            self._digest.update(line)
        except RunError:
            with suppress(RunError):
                files.truncate(self.path, before)  # else the next line would be appended to an incomplete one
            raise

    def position(self) -> Position:
        """Size in bytes, fsynced, so that a checkpoint is never ahead of the log; and the hash of the log."""
        files.sync_file(self.path)
        return self._size(), self._digest.hexdigest()

    def truncate_to(self, position: Position | int) -> None:
        """Removes lines after a checkpoint, so that the log of a resumed run equals that of an uninterrupted one.
        Checkpoints of earlier versions have no hash."""
        size, digest = (position, "") if isinstance(position, int) else position
        before = _read(self.path)[:size]
        self._digest = sha256(before)
        if _complete(before) < size or digest not in ("", self._digest.hexdigest()):
            raise RunError(
                f"{self.path}: changed before byte {size}, where the checkpoint was saved; restore it, or use another "
                "--run"
            )
        files.truncate(self.path, size)

    def _size(self) -> int:
        return os.path.getsize(self.path)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """All records. An incomplete last line is skipped with a `RunWarning`; other problems are a RunError."""
    path = Path(path)
    data = _read(path)
    complete = _complete(data)
    records = []
    for number, line in enumerate(data[:complete].split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise RunError(f"{path}, line {number}: a record is a JSON object, not {type(record).__name__}")
        records.append(record)
    if complete < len(data):
        warnings.warn(f"{path}: skipped an incomplete last line", RunWarning, stacklevel=2)
    return records


def _read(path: Path) -> bytes:
    return read_bytes(path, limits().memory, follow_links=True)


def _complete(data: bytes) -> int:
    """Number of bytes in complete lines."""
    return data.rfind(b"\n") + 1
