"""Tokenizers and JSON in a run folder, written atomically."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elman.errors import DataError
from elman.runs import atomic_write
from elman.tokenizers import Tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    with TemporaryDirectory() as aside:
        tokenizer.save(Path(aside) / path.name)
        atomic_write(path, (Path(aside) / path.name).read_bytes())


def save_json(content: Any, path: Path) -> None:
    atomic_write(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from None
    except ValueError as error:
        raise DataError(f"damaged: {error}", file=path, remedy="copy the run again, or train it again") from None
