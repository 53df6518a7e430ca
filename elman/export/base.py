"""What formats share: the registry, and how contents become a folder."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elman import files
from elman.errors import ConfigError

Weights = Literal["fp32", "int8"]
Check = Callable[[Path], list[str]]


class Export(NamedTuple):
    """The contents of a folder by path, notes for the user, in which `{folder}` stands for it, and a check of the
    written folder: it returns what it found, and raises an error if the export does not agree with the run."""

    contents: Mapping[str, bytes]
    notes: list[str]
    check: Check | None = None


def write_folder(export: Export, target: Path) -> list[str]:
    """Writes the folder, checked before it gets its name; returns the notes."""
    files.make_folder(target.parent)
    with files.replacing(target) as beside:
        for folder in sorted({Path(beside, name).parent for name in export.contents} | {Path(beside)}):
            files.make_folder(folder)
        for name, data in export.contents.items():
            files.write_file(Path(beside, name), data)
        files.sync_folder(Path(beside))
        checked = export.check(Path(beside)) if export.check else []
    return [*(note.format(folder=target) for note in export.notes), *checked]


def json_bytes(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def only_fp32(format: str, weights: Weights) -> None:
    if weights != "fp32":
        raise ConfigError(
            f"--format {format} has the weights of the run; --weights {weights} goes with --format c or binary"
        )
