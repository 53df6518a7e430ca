"""An exported C library, compiled and called from Python: how an export is checked against its run."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elman.compiler.errors import NoCompiler
from elman.errors import ElmanError, RunError

SUCCESS, NO_ROOM = 0, 7  # of elman.h
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math"]
STANDARD = ["-std=c++17", "-fno-exceptions", "-fno-rtti", "-shared", "-fPIC"]


class Settings(ctypes.Structure):
    """elman_settings of elman.h."""

    _fields_ = [
        ("seed", c_uint64), ("stream", c_uint32), ("max_tokens", c_int32), ("temperature", c_double),
        ("top_k", c_int32), *((name, c_double) for name in ("top_p", "min_p")),
        *((name, c_double) for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")),
        *((name, c_int32) for name in ("repetition_window", "stop_at_end", "unknown")),
        ("stop", POINTER(c_char_p)), ("stops", c_int32),
    ]  # fmt: skip


SINK = ctypes.CFUNCTYPE(c_int, c_void_p, c_int32, c_double, c_void_p, c_size_t)


class Written(NamedTuple):
    text: str
    tokens: list[int]
    log_probs: list[float]


def compiler_command(name: str = "") -> list[str]:
    """The C++ compiler: CXX, or c++."""
    name = name or os.environ.get("CXX") or "c++"
    if shutil.which(name.split()[0]) is None:
        raise NoCompiler(f"there is no C++ compiler {name!r}; install one, or set CXX")
    return name.split()


def compile_library(folder: Path, target: Path, *flags: str, compiler: str = "") -> Path:
    """Compiles the exported folder into a shared library."""
    command = [
        *compiler_command(compiler),
        *STANDARD,
        *(flags or [*FAST, "-march=native"]),
        "elman.cpp",
        "-o",
        str(target.absolute()),
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if found.returncode or found.stderr:
        raise RunError(f"the exported library does not compile without a warning: {found.stderr.strip()[:2000]}")
    return target


class Library:
    """A compiled library, and one text of its model."""

    def __init__(self, library: Path, blob: Path | bytes):
        self.place, self.own = library, ctypes.CDLL(str(library))
        self.own.elman_message.restype = c_char_p
        self.own.elman_label.restype = c_char_p
        self.own.elman_defaults.restype = Settings
        self.own.elman_logits.restype = POINTER(c_float)
        self.own.elman_state_size.restype = c_size_t
        self.model = c_void_p()
        if isinstance(blob, bytes):
            self._call("load_memory", blob, c_size_t(len(blob)), byref(self.model))
        else:
            self._call("load", str(blob).encode(), byref(self.model))
        self.outputs: int = self.own.elman_outputs(self.model)

    def clone(self) -> "Library":
        """Another text with the same weights, which goes on from this one's state."""
        other = Library.__new__(Library)
        other.place, other.own, other.outputs, other.model = self.place, self.own, self.outputs, c_void_p()
        self._call("clone", self.model, byref(other.model))
        return other

    def close(self) -> None:
        self.own.elman_free(self.model)
        self.model = c_void_p()

    def encode(self, text: bytes) -> list[int]:
        tokens = (c_int32 * (4 * len(text) + 8))()  # an invalid byte is three, and a letter may be decomposed
        count = c_size_t()
        self._call("encode", self.model, text, c_size_t(len(text)), tokens, c_size_t(len(tokens)), byref(count))
        return tokens[: count.value]

    def decode(self, tokens: Sequence[int]) -> str:
        given, size = (c_int32 * len(tokens))(*tokens), c_size_t()
        arguments = self.model, given, c_size_t(len(tokens))
        code = self.own.elman_decode(*arguments, None, c_size_t(0), byref(size))
        self._check(SUCCESS if code == NO_ROOM else code)
        text = ctypes.create_string_buffer(size.value)
        self._call("decode", *arguments, text, size, byref(size))
        return text.raw.decode()

    def reset(self) -> np.ndarray:
        self._call("reset", self.model)
        return self.logits

    def step(self, token: int) -> np.ndarray:
        self._call("step", self.model, c_int32(token))
        return self.logits

    @property
    def logits(self) -> np.ndarray:
        """A copy of those after the last step."""
        return np.ctypeslib.as_array(self.own.elman_logits(self.model), (self.outputs,)).copy()

    def settings(self, given: Mapping[str, Any]) -> Settings:
        settings, values = self.own.elman_defaults(), dict(given)
        stops = [stop.encode() for stop in values.pop("stop", ())]
        settings.stop, settings.stops = (c_char_p * len(stops))(*stops), len(stops)
        for name, value in values.items():
            setattr(settings, name, value)
        return settings

    def generate(self, prompt: str | bytes | None, **settings: Any) -> Written:
        parts, tokens, log_probs = [], [], []

        def sink(_: Any, token: int, log_prob: float, text: int, size: int) -> int:
            parts.append(ctypes.string_at(text, size))
            if token >= 0:
                tokens.append(token)
                log_probs.append(log_prob)
            return 0

        given = prompt.encode() if isinstance(prompt, str) else prompt
        size, own = c_size_t(len(given or b"")), self.settings(settings)
        self._call("generate", self.model, given, size, byref(own), SINK(sink), None)
        return Written(b"".join(parts).decode(), tokens, log_probs)

    def classify(self, text: str) -> np.ndarray:
        results, given = (c_float * self.outputs)(), text.encode()
        self._check(self.own.elman_classify(self.model, given, c_size_t(len(given)), results))
        return np.array(results)

    def labels(self) -> list[str]:
        found = (self.own.elman_label(self.model, number) for number in range(self.outputs))
        return [label.decode() for label in found if label is not None]

    def save(self) -> bytes:
        state = ctypes.create_string_buffer(self.own.elman_state_size(self.model))
        self._call("state_save", self.model, state, c_size_t(len(state)))
        return state.raw

    def restore(self, state: bytes) -> None:
        self._call("state_load", self.model, state, c_size_t(len(state)))

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(self.own[f"elman_{name}"](*arguments))

    def _check(self, code: int) -> None:
        if code:
            raise ElmanError(f"the C library: {self.own.elman_message(code).decode()}")
