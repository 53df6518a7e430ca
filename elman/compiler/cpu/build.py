"""C++ to machine code: compiled once on each kind of machine, kept in the user's cache, loaded from there."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from elman.compiler.errors import NoCompiler
from elman.errors import ConfigError
from elman.ops.cache import cache_folder

FLAGS = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
# What -ffast-math allows, but for infinities; that flag itself would change how the whole process rounds.
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math"]
HERE = Path(__file__).parent


@cache
def runtime() -> ctypes.CDLL:
    """What all programs share: the loop that chooses tokens, and the threads that share a product."""
    found = library("".join((HERE / name).read_text() for name in ("step/sampling.h", "pool.h")))
    found.run.restype = ctypes.c_int64
    return found


def use_threads(count: int) -> None:
    """So many threads work on each large product, in this process; one is the default."""
    if count < 1:
        raise ConfigError(f"{count} threads cannot work; at least one is needed")
    runtime().use_threads(ctypes.c_int64(count))


def library(source: str, *heads: str) -> ctypes.CDLL:
    """C++ after these heads (our kernels, unless others are given), loaded.

    Two processes may build it at once: only whole files get the final name.
    """
    path = built(source, *heads)
    if not path.exists():
        _compile(head(*heads) + source, path)
    return ctypes.CDLL(str(path))


def built(source: str, *heads: str) -> Path:
    """Where the machine code of this source is or will be."""
    parts = [source, head(*heads), *FLAGS, compiler(), processor()]
    return cache_folder("native") / f"{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:32]}.so"


@cache
def head(*names: str) -> str:
    return "".join((HERE / name).read_text() for name in names or ("numbers.h", "step/kernels.h"))


@cache
def compiler() -> str:
    """The compiler's name and version: CXX, or c++."""
    name = os.environ.get("CXX") or "c++"
    if shutil.which(name.split()[0]) is None:
        raise NoCompiler(f"there is no C++ compiler {name!r}; install one, or set CXX")
    found = subprocess.run([*name.split(), "--version"], capture_output=True, text=True, check=False)
    return f"{name} {found.stdout.partition(chr(10))[0]}"


@cache
def processor() -> str:
    """What tells one kind of machine from another: code for one may not run on the next."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


@cache
def vectors() -> str:
    """The vector instructions that compiled code uses here, for explanations."""
    flags = processor().split()
    wide = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else platform.machine()
    return f"{wide} with VNNI" if "avx512_vnni" in flags else wide


def _compile(source: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            text, result = Path(aside) / "step.cpp", Path(aside) / "step.so"
            text.write_text(source)
            command = [*(os.environ.get("CXX") or "c++").split(), *FLAGS, str(text), "-o", str(result)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.returncode:
                raise NoCompiler(f"the compiler failed: {found.stderr.strip()[-500:]}")
            result.replace(path)
    except OSError as error:
        raise NoCompiler(f"machine code cannot be kept in {path.parent}: {error.strerror}") from error
