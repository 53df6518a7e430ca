"""Any exception as one sentence for users, with the exit code: 2 for wrong usage, else 1."""

import os
import re
import sys
import traceback
from contextlib import suppress
from typing import NoReturn, TextIO

from elman.errors import ConfigError, ElmanError, first_line
from elman.files import user_path

LONGEST = 400  # characters of another library's message
OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|Cannot allocate memory")
WANTED = re.compile(r"[Tt]ried to allocate ([\d.]+ ?\w+)")
READERS = {"_csv", "json", "pyarrow", "pyo3_runtime", "safetensors", "safetensors_rust", "tokenizers", "yaml", "zlib"}


def end_with(problem: BaseException, debug: bool) -> NoReturn:
    """Prints a problem as one sentence on stderr and exits; with `debug`, after its traceback."""
    pipe = isinstance(problem, BrokenPipeError)  # the reader of our output has ended, as `head` does
    with suppress(OSError):
        if debug:
            traceback.print_exception(problem)
        if not pipe:
            print(f"elman: {_sentence(problem)}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)  # else the same error comes again at exit
    raise SystemExit(0 if pipe else 2 if isinstance(problem, ConfigError) else 1)


def _sentence(problem: BaseException) -> str:
    message = first_line(problem)[:LONGEST]
    if isinstance(problem, ElmanError):
        text = str(problem)
    elif isinstance(problem, MemoryError) or OUT_OF_MEMORY.search(str(problem)):
        wanted = WANTED.search(str(problem))
        at_once = f" ({wanted[1]} at once)" if wanted else ""
        text = f"memory ran out{at_once}: make batches, sequences, the vocabulary or the model smaller"
    elif isinstance(problem, OSError):
        where = "standard output" if problem.filename is None else user_path(problem.filename)
        text = f"{where}: {problem.strerror or message}"
    elif isinstance(problem, UnicodeEncodeError):
        text = f"{problem.object[problem.start]!a} cannot be written as {problem.encoding}; PYTHONUTF8=1 writes UTF-8"
    elif isinstance(problem, UnicodeDecodeError):
        text = f"a file is not UTF-8 text: byte {problem.start} is 0x{problem.object[problem.start]:02x}"
    elif isinstance(problem, RecursionError):
        text = "a file or a setting is nested too deeply; --debug shows the traceback"
    elif type(problem).__module__.partition(".")[0] in READERS:
        text = f"a file cannot be read: {message}; --debug shows the traceback"
    else:
        text = f"unexpected {type(problem).__name__}: {message}; --debug shows the traceback; please report it"
    return text


def _discard(stream: TextIO) -> None:
    """Sends what is left in a stream's buffer, and all that follows, nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
