"""C++: types and expressions of operations, and compilation into shared libraries, which are cached in the user's cache
folder by source, flags, compiler and CPU."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from elman.compiler.errors import CannotCompile, NoCompiler
from elman.errors import ConfigError
from elman.ops.cache import cache_folder

FLAGS = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
# -ffast-math without -ffinite-math-only; that flag itself would change the rounding mode of the whole process.
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math"]
HERE = Path(__file__).parent
C_TYPES = {torch.float32: "float", torch.float64: "double", torch.bool: "bool", torch.complex64: "complex"}
C_TYPES |= {torch.int64: "int64_t", torch.int32: "int32_t", torch.uint8: "uint8_t"}
COMPARISONS = {"eq": "==", "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "ne": "!="}
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitwise_and": "&", "bitwise_or": "|"}
SIGNS |= {"logical_and": "&&", "logical_or": "||"}
STANDARD = ("ceil", "cos", "expm1", "floor", "log", "log1p", "sin", "sqrt")  # functions of <cmath>
OURS = {"abs": "absolute", "erf": "error_function", "exp": "exponential", "sigmoid": "sigmoid"}
EXPRESSIONS = {  # by ATen's name; the arguments have the type of the result
    **{name: f"({{0}} {sign} {{1}})" for name, sign in SIGNS.items()},
    **{name: f"std::{name}({{0}})" for name in STANDARD},
    **{name: f"{function}({{0}})" for name, function in OURS.items()},  # of scalar_math.h, as some below
    **dict.fromkeys(("bitwise_not", "logical_not"), "(!{0})"),
    **dict.fromkeys(("clone", "_to_copy"), "{0}"),
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "neg": "(-{0})",
    "pow": "power({0}, {1})",
    "reciprocal": "(1 / {0})",
    "relu": "({0} < 0 ? 0 : {0})",
    "remainder": "modulo({0}, {1})",
    "rsqrt": "(1 / std::sqrt({0}))",
    "tanh": "hyperbolic_tangent({0})",
    "where": "({0} ? {1} : {2})",
}


def c_type(dtype: torch.dtype) -> str:
    if dtype not in C_TYPES:
        raise CannotCompile(f"dtype {str(dtype).removeprefix('torch.')} is not supported")
    return C_TYPES[dtype]


@cache
def runtime() -> ctypes.CDLL:
    """Code shared by all single-step programs: the sampling loop and the thread pool."""
    shared = library("".join((HERE / name).read_text() for name in ("step/sampling.h", "thread_pool.h")))
    shared.run.restype = ctypes.c_int64
    return shared


def use_threads(count: int) -> None:
    """Sets the number of threads of each large matrix-vector product, for this process; the default is one."""
    if count < 1:
        raise ConfigError(f"cannot use {count} threads; at least 1 is needed")
    runtime().use_threads(ctypes.c_int64(count))


def library(source: str, *heads: str) -> ctypes.CDLL:
    """Compiles and loads C++ source after these header files (by default those of single-step programs).

    Two processes may build the same library at once: a file gets its final name only when it is complete.
    """
    path = built(source, *heads)
    if not path.exists():
        _compile(head(*heads) + source, path)
    return ctypes.CDLL(str(path))


def built(source: str, *heads: str) -> Path:
    """The path in the cache of the library for this source."""
    parts = [source, head(*heads), *FLAGS, compiler(), processor()]
    return cache_folder("native") / f"{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:32]}.so"


@cache
def head(*names: str) -> str:
    return "".join((HERE / name).read_text() for name in names or ("scalar_math.h", "step/kernels.h"))


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
    """The CPU's instruction set (-march=native): code for one CPU may not run on another."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


@cache
def vectors() -> str:
    """The SIMD instruction set that compiled code uses here, for explanations."""
    flags = processor().split()
    wide = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else platform.machine()
    return f"{wide} with VNNI" if "avx512_vnni" in flags else wide


def _compile(source: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            text, result = Path(folder) / "step.cpp", Path(folder) / "step.so"
            text.write_text(source)
            command = [*(os.environ.get("CXX") or "c++").split(), *FLAGS, str(text), "-o", str(result)]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.returncode:
                raise NoCompiler(f"the compiler failed: {found.stderr.strip()[-500:]}")
            result.replace(path)
    except OSError as error:
        raise NoCompiler(f"compiled code cannot be written to {path.parent}: {error.strerror}") from error
