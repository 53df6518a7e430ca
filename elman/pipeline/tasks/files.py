"""JSON in a run folder, written atomically."""

import json
from pathlib import Path
from typing import Any

from elman.errors import DataError
from elman.runs import atomic_write


def save_json(content: Any, path: Path) -> None:
    atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from None
    except ValueError as error:
        raise DataError(f"damaged: {error}", file=path, remedy="copy the run again, or train it again") from None
