"""C++: types and expressions of operations, and compilation into shared libraries, which are cached in the user's cache
folder by source, flags, compiler and CPU."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from elman.compiler.errors import CannotCompile, NoCompiler
from elman.errors import RunError
from elman.files import discard, rename, sync_file, sync_folder
from elman.ops.cache import cache_folder, is_own, private_folder

FLAGS = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
# -ffast-math without -ffinite-math-only; that flag itself would change the rounding mode of the whole process.
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math"]
STEP_HEADS = "scalar_math.h", "step/row.h", "step/kernels.h"
RUNTIME_HEADS = "scalar_math.h", "step/row.h", "step/threads.h", "step/products.h", "step/sampling.h"
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
    """Matrix products, sampling and threads: what all single-step programs share."""
    shared = library((HERE / "step/rows.h").read_text(), *RUNTIME_HEADS)
    shared.run.restype = ctypes.c_int64
    shared.open_pool.restype = ctypes.c_void_p
    return shared


def library(source: str, *heads: str) -> ctypes.CDLL:
    """Compiles and loads C++ source after these header files (by default those of single-step programs).

    Libraries are cached as KEY-HASH.so: a hash of what each is made from, and of its bytes, so that a damaged one is
    built again. Two processes may build the same one at once: a file gets its name only when it is complete.
    """
    parts = [source, head(*heads), *FLAGS, compiler(), processor()]
    key = hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]
    try:
        folder = private_folder("native")
        return ctypes.CDLL(str(_cached(folder, key) or _compile(head(*heads) + source, folder, key)))
    except (OSError, RunError) as error:
        place, reason = cache_folder("native"), getattr(error, "strerror", None) or error
        raise NoCompiler(f"compiled code cannot be written to {place}, or not loaded from there: {reason}") from error


def _cached(folder: Path, key: str) -> Path | None:
    """The library with this key; damaged ones, and those of other users, are removed."""
    for path in folder.glob(f"{key}-*.so"):
        with suppress(FileNotFoundError):  # another process removed it
            if path.is_file() and not path.is_symlink() and is_own(path) and path.name == _name(key, path):
                return path
            discard(path)
    return None


def _name(key: str, library: Path) -> str:
    return f"{key}-{hashlib.sha256(library.read_bytes()).hexdigest()}.so"


@cache
def head(*names: str) -> str:
    return "".join((HERE / name).read_text() for name in names or STEP_HEADS)


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


def _compile(source: str, folder: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        text, result = Path(aside) / "step.cpp", Path(aside) / "step.so"
        text.write_text(source)
        # by its name alone: some flags write the path into the library, whose bytes would differ each time
        command = [*(os.environ.get("CXX") or "c++").split(), *FLAGS, text.name, "-o", result.name]
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=aside)
        if found.returncode:
            raise NoCompiler(f"the compiler failed: {found.stderr.strip()[-500:]}")
        path = folder / _name(key, result)
        sync_file(result)
        rename(result, path)
    sync_folder(folder)
    return path
