"""Every exception ends a command in one sentence, with the right exit code; `--debug` shows its traceback."""

import json
import subprocess
import sys
import zlib

import pytest
import torch
from processes import run
from safetensors import SafetensorError

from elman.cli import main as command_line
from elman.errors import ConfigError, DataError
from elman.files import ASIDE, atomic_write, temporary_path

Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
PROBLEMS = {
    "setting": (ConfigError("no"), 2, "no"),
    "data": (DataError("no", file="a.txt"), 1, "a.txt: no"),
    "denied": (PermissionError(13, "Permission denied", "a.txt"), 1, "a.txt: Permission denied"),
    "temporary": (OSError(5, "Input/output error", f"r/{ASIDE}{'0' * 32}-best/w"), 1, "r/best/w: Input/output error"),
    "full": (OSError(28, "No space left on device"), 1, "standard output: No space left on device"),
    "memory": (MemoryError(), 1, "memory ran out: make batches"),
    "torch": (RuntimeError("can't allocate memory: you tried to allocate 400000 bytes"), 1, "(400000 bytes at once)"),
    "gpu": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), 1, "(2.00 GiB at once)"),
    "encoding": (UnicodeEncodeError("ascii", "aö", 1, 2, "ordinal"), 1, r"'\xf6' cannot be written as ascii"),
    "decoding": (UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid"), 1, "byte 1 is 0xff"),
    "nested": (RecursionError("maximum"), 1, "nested too deeply"),
    "weights": (SafetensorError("header"), 1, "a file cannot be read: header"),
    "json": (json.JSONDecodeError("Expecting value", "", 0), 1, "a file cannot be read: Expecting value"),
    "gzip": (zlib.error("Error -3"), 1, "a file cannot be read: Error -3"),
    "panic": (Panic("index out of bounds\nmore"), 1, "a file cannot be read: index out of bounds;"),
    "unknown": (KeyError("x"), 1, "unexpected KeyError: 'x'; --debug shows the traceback; please report it"),
}


@pytest.fixture
def failing(monkeypatch):
    def fail_with(problem):
        def fail(*words, **more):
            print("a result")
            raise problem

        monkeypatch.setattr(command_line, "app_of", lambda names: fail)

    return fail_with


@pytest.mark.parametrize("name", PROBLEMS)
def test_any_exception_is_one_sentence(elman, failing, name):
    problem, code, sentence = PROBLEMS[name]
    failing(problem)
    ended = elman("list")
    assert (ended.code, ended.out) == (code, "a result\n")
    assert ended.err.startswith("elman: ")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1


def test_debug_shows_the_traceback_too(elman, failing):
    failing(KeyError("x"))
    ended = elman("list", "--debug")
    assert "Traceback (most recent call last)" in ended.err
    assert ended.err.splitlines()[-1].startswith("elman: unexpected KeyError: 'x'")
    failing(ConfigError("no"))
    assert "Traceback" not in elman("list", "--", "--debug").err, "it was an argument"


def test_an_error_names_the_path_that_was_given(tmp_path):
    from elman.errors import RunError

    path = tmp_path / "missing" / "a.json"
    assert ASIDE in temporary_path(path).name
    with pytest.raises(RunError, match=r"missing/a\.json: cannot create: No such file") as told:
        atomic_write(path, b"x")
    assert ASIDE not in str(told.value)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device of Linux")
def test_a_full_device_is_one_line():
    with open("/dev/full", "w") as full:
        ended = run(
            [sys.executable, "-m", "elman", "--version"], capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert (ended.returncode, ended.stderr) == (1, "elman: standard output: No space left on device\n")
