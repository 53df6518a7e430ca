"""JSON in a run folder, written atomically."""

import json
from pathlib import Path
from typing import Any

from elman.runs import atomic_write


def save_json(content: Any, path: Path) -> None:
    atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
