"""Lines of standard input, as text or JSON objects."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from elman.cli.options import InputFormat
from elman.errors import DataError

STDIN = "standard input"


def read_lines() -> Iterator[str]:
    """Lines without their ends; invalid UTF-8 is replaced and counted, so that one bad byte does not end a stream."""
    from elman.corpus import Repairs

    repairs = Repairs()
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        for number, line in enumerate(sys.stdin, start=1):
            text = line.encode(errors="surrogateescape").decode(errors="replace")
            if text != line:
                repairs.add("invalid UTF-8", STDIN, number)
            yield text.rstrip("\r\n")
    finally:
        for repair in repairs.describe():
            print(f"repaired: {repair}", file=sys.stderr)


def read_text(text: str) -> str:
    """The text itself, or for "-" all lines."""
    return "\n".join(read_lines()) if text == "-" else text


def read_objects(form: InputFormat) -> Iterator[Any]:
    """Lines as --from says: texts, or JSON objects."""
    for number, line in enumerate(read_lines(), start=1):
        if form == "text":
            yield line
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not valid JSON: {error}", file=STDIN, line=number) from None
        if not isinstance(found, dict):
            raise DataError("not a JSON object", file=STDIN, line=number, remedy='write {"text": "..."}')
        yield found


@contextmanager
def naming_input() -> Iterator[None]:
    """Adds "standard input" to errors that name a line but no file."""
    try:
        yield
    except DataError as error:
        if error.file is None and error.line is not None:
            raise DataError(error.reason, file=STDIN, line=error.line, remedy=error.remedy) from None
        raise
