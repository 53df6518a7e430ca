"""Crash-safe file operations, each behind one test hook and with full error messages.

A file under its final name is complete: it is written to a temporary name, fsynced, renamed, and the folder is fsynced.
An interrupted write leaves only names that start with `ASIDE`, which the next holder of the run's lock removes.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

from elman.errors import RunError

ASIDE = ".aside-"
ASIDE_NAME = re.compile(rf"{re.escape(ASIDE)}[0-9a-f]{{32}}-")
CHUNK = 2**20  # bytes per write operation
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RunWarning(UserWarning):
    """A problem in a run folder that was worked around."""


def hook(operation: str, *paths: Path) -> None:
    """Called before each operation; tests replace it to fail, to exit or to log."""


@contextmanager
def _operation(name: str, *paths: Path, needed: int = 0) -> Iterator[None]:
    try:
        hook(name, *paths)
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL:
            reason += f" ({needed} bytes needed, {_free(paths[0].parent)} bytes free)"
        raise RunError(f"{user_path(paths[0])}: cannot {name}: {reason}") from error


def npy_bytes(array: Any) -> bytes:
    """The contents of a .npy file."""
    import numpy as np

    memory = BytesIO()
    np.save(memory, array, allow_pickle=False)
    return memory.getvalue()


class WritableFile(FileIO):
    """An unbuffered file, each write to which is an operation."""

    def write(self, data: Any) -> int:
        path, rest = Path(str(self.name)), memoryview(data).cast("B")
        size = len(rest)
        while rest:
            with _operation("write", path, needed=size):
                rest = rest[super().write(rest[:CHUNK]) :]
        return size


@contextmanager
def new_file(path: Path) -> Iterator[WritableFile]:
    """A new file to write to, fsynced at the end of the block."""
    with _operation("create", path):
        file = WritableFile(path, "xb")
    with file:
        yield file
        with _operation("sync", path):
            os.fsync(file.fileno())


def share(path: Path, place: Path) -> None:
    """A hard link where the file system has them, else a copy; for files that are only ever replaced."""
    with replacing(place) as temporary:
        try:
            with _operation("link", temporary):
                os.link(path, temporary)
        except RunError:
            with open(path, "rb") as source, new_file(temporary) as copy:
                shutil.copyfileobj(source, copy)


def open_log(path: Path) -> int:
    """The descriptor of an emptied file, for what a process says."""
    with _operation("open", path):
        return unlinked(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file and fsyncs it."""
    with new_file(path) as file:
        file.write(data)


def require_plain(folder: Path, links: bool = False) -> None:
    """RunError if a folder holds anything but files and folders: opening a pipe may wait for ever, a device has no end,
    and a link would lead writes to files of others. `links` to files and folders are allowed where they are read."""
    for place, folders, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *names)):
            try:
                mode = (os.stat if links else os.lstat)(path).st_mode
            except FileNotFoundError:
                continue  # removed meanwhile, or a link to nothing
            except OSError as error:
                raise RunError(f"{path}: {error.strerror}") from None
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe or a device"
                raise RunError(f"{path}: {kind}, where a run has files and folders only; remove it")


def unlinked(path: str | Path, flags: int) -> int:
    """Opens a file, but not through a symbolic link; an `opener` for `open`."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(path, flags, 0o666)


def append(path: Path, data: bytes) -> None:
    """Appends to a file without fsync."""
    with _operation("open", path):
        file = WritableFile(path, "ab", opener=unlinked)
    with file:
        file.write(data)


def truncate(path: Path, size: int) -> None:
    """Truncates a file and fsyncs it."""
    with _operation("open", path), open(path, "r+b", buffering=0, opener=unlinked) as file:
        with _operation("truncate", path):
            os.ftruncate(file.fileno(), size)
        with _operation("sync", path):
            os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    with _operation("sync", path), open(path, "r+b", buffering=0, opener=unlinked) as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open folders
    with _operation("sync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Creates a folder with its parents, and fsyncs the parent of each new one."""
    if not path.is_dir():
        make_folder(path.parent)
        with _operation("make", path):
            path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    with _operation("rename", source, target):
        os.replace(source, target)


def remove(path: Path) -> None:
    """Removes a file or a folder tree; does not follow links."""
    if path.is_dir() and not path.is_symlink():
        with _operation("list", path):
            inside = sorted(path.iterdir())
        for entry in inside:
            remove(entry)
        with _operation("remove", path):
            path.rmdir()
    else:
        with _operation("remove", path):
            path.unlink()


def sha256_of(path: Path) -> str:
    """Hash of a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def temporary_path(path: Path) -> Path:
    """A unique temporary name in the same folder."""
    return path.with_name(f"{ASIDE}{uuid.uuid4().hex}-{path.name}")


def user_path(path: str | int | Path) -> str:
    """A path for an error message, with the names that its temporary files and folders will have."""
    return ASIDE_NAME.sub("", str(path))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `path` at the end of the block, or removed after an error."""
    temporary = temporary_path(path)
    try:
        yield temporary
        rename(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_folder(path.parent)


def atomic_write(path: Path, data: bytes) -> None:
    """Writes a file atomically: the old contents stay until the new ones are durable."""
    with replacing(path) as temporary:
        write_file(temporary, data)


def discard(path: Path) -> None:
    """Removes the remains of a failed write; suppresses errors, because the original failure matters more."""
    if os.path.lexists(path):
        with suppress(RunError):
            remove(path)


def clean_leftovers(folder: Path) -> None:
    """Removes the remains of interrupted writes. Only for the holder of the run's lock, the only writer."""
    for path in sorted(folder.glob(f"{ASIDE}*")):
        discard(path)
        if os.path.lexists(path):
            warnings.warn(f"{path}: cannot remove the remains of an interrupted write", RunWarning, stacklevel=2)


def require_space(folder: Path, needed: int) -> None:
    """Fails before writing if the disk has too little space."""
    with _operation("measure the free space of", folder):
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(f"{folder}: disk full ({needed} bytes needed, {free} bytes free)")


def _free(folder: Path) -> int | str:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return "an unknown number of"
