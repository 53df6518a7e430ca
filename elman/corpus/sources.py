"""Where text is: a setting such as `data/*.txt` or `hub:owner/name` becomes a list of sources of known format."""

import glob
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from elman.corpus.config import Format, Places
from elman.corpus.file_cache import file_digest
from elman.errors import DataError, nearest

STANDARD_INPUT = Path("-")
HUB = "hub:"
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class Source:
    """One file, standard input or hub data set. `name` is what messages say; `path` is what is opened."""

    name: str
    path: Path
    format: Format
    split: str = ""  # of a hub data set
    config: str | None = None  # of a hub data set

    @property
    def zipped(self) -> bool:
        return self.path.suffix.lower() == ".gz"


def locate(places: Places, format: Format = "auto", split: str = "train") -> list[Source]:
    """The sources that a setting names, in a fixed order; whatever is not there is an error."""
    listed = [places] if isinstance(places, str) else places or []
    return [source for place in listed for source in _locate(place, format, split)]


def _locate(place: str, format: Format, split: str) -> Iterator[Source]:
    if place == str(STANDARD_INPUT):
        yield Source("standard input", STANDARD_INPUT, "text" if format == "auto" else format)
    elif place.startswith(HUB) or format == "hub":
        address, _, named = place.removeprefix(HUB).partition("#")
        address, _, config = address.partition("@")
        if not address:
            raise DataError(f"{place!r} names no data set", remedy="write hub:OWNER/NAME[@CONFIG][#SPLIT]")
        yield Source(place, Path(address), "hub", named or HUB_SPLITS[split], config or None)
    else:
        for path in _files(place):
            yield Source(str(path), path, _format(path) if format == "auto" else format)


def _files(place: str) -> list[Path]:
    path = Path(place).expanduser()
    mode = _mode(path)
    if stat.S_ISREG(mode):
        return [path]
    if stat.S_ISDIR(mode):
        inside = path.rglob("*")
        found = [file for file in inside if _regular(file) and not _hidden(file.relative_to(path))]
        if not found:
            raise DataError("the folder holds no file to read", file=place, remedy="hidden files are left out")
        return sorted(found)
    if mode:
        raise DataError(
            "neither a file nor a folder but a pipe or a device",
            file=place,
            remedy="pipes are read as standard input: give -",
        )
    if any(sign in place for sign in "*?["):
        matched = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        found = [file for file in matched if _regular(file)]
        if found:
            return found
        raise DataError("no file matches this pattern", file=place)
    raise DataError(f"no such file or folder{nearest(path.name, _neighbours(path))}", file=place)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:  # a name that is too long, holds NUL, or passes a closed folder
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"cannot be opened: {reason}", file=str(path)[:200]) from None


def _regular(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _neighbours(path: Path) -> list[str]:
    try:
        return [other.name for other in path.parent.iterdir()]
    except OSError:
        return []


def _format(path: Path) -> Format:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return SUFFIXES.get(suffixes[-1], "text") if suffixes else "text"


def spool(source: Source, owner: object) -> Source:
    """Standard input as a file that is removed when its owner goes."""
    handle, name = tempfile.mkstemp(prefix="elman-")
    path = Path(name)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return replace(source, path=path)


def digest(source: Source) -> str:
    """A hash of a source's bytes; of a data set on the hub, whose bytes are elsewhere, of its address."""
    whole = hashlib.sha256()
    if source.format == "hub":
        whole.update(repr((source.split, source.config)).encode())
        if not source.path.is_dir():
            whole.update(source.path.as_posix().encode())
            return whole.hexdigest()
    files = _files(str(source.path)) if source.path.is_dir() else [source.path]
    for path in files:
        try:
            whole.update(file_digest(path))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=source.name) from None
    return whole.hexdigest()
