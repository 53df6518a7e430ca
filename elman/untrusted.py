"""Reads files that may be damaged or hostile: regular files only, of bounded size; every problem is one sentence.

A pipe or a device would be read for ever, a link could lead to any file of the machine, and a parser's own exceptions
say nothing to users.
"""

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from elman.config import first_problem
from elman.errors import ConfigError, DataError, ElmanError, RunError, first_line
from elman.limits import limits
from elman.plain_yaml import parse_yaml

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")


def read_bytes(
    path: str | Path, at_most: int, error: type[ElmanError] = RunError, *, follow_links: bool = False
) -> bytes:
    """The contents of a regular file of at most so many bytes."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # opening a pipe must not wait
    flags |= 0 if follow_links else getattr(os, "O_NOFOLLOW", 0)
    try:
        if not follow_links and os.path.islink(path):
            raise error(f"{path}: is a symbolic link, which is not followed here")
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise error(f"{path}: not a regular file")
            if status.st_size > at_most:
                raise error(f"{path}: {status.st_size} bytes, but at most {at_most} are read")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(status.st_size)  # not at_most, for which memory would be reserved
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise error(f"{path}: cannot be read: {problem.strerror}") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The settings of a recipe, a run or a race."""
    most = limits().yaml_bytes
    if not os.path.exists(path):
        raise ConfigError(f"{path}: no such recipe")
    if os.path.isdir(path):
        raise ConfigError(f"{path}: cannot be read as a recipe: it is a folder")
    content = read_bytes(path, most, ConfigError, follow_links=True)
    try:
        settings = parse_yaml(content.decode(), most)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as a recipe: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(settings or {}, dict):
        raise ConfigError(f"{path}: a recipe consists of `key: value` lines, not {type(settings).__name__}")
    return settings or {}


def read_json(path: str | Path, error: type[ElmanError] = RunError, *, follow_links: bool = False) -> Any:
    """The contents of a JSON file."""
    return parse_json(read_bytes(path, limits().json_bytes, error, follow_links=follow_links), path, error)


def read_as(kind: type[T], path: str | Path) -> T:
    """An object of a dataclass or of settings, from a JSON file of its fields; DataError where they are not."""
    content = read_json(path, DataError, follow_links=True)
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as problem:
        raise DataError(
            f"damaged: {first_problem(problem)}", file=path, remedy="copy the run again, or train it again"
        ) from None


def parse_json(text: str | bytes, path: str | Path, error: type[ElmanError] = RunError) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: not valid JSON: {' '.join(str(problem).split())[:200]}") from None


def read_array(path: Path) -> "NDArray[Any]":
    """A .npy file, memory-mapped, so that a header cannot ask for more than the file holds."""
    import numpy as np

    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as problem:  # numpy parses headers as Python literals, and raises what the parser does
        raise DataError(f"damaged array: {first_line(problem)}", file=path) from None
