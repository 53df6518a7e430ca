"""What this processor can do at most, measured beside what is compared with it: no program of matrix products is faster
than multiply-adds that never leave the registers, and none of a single row than reading its weights."""

import ctypes
from pathlib import Path
from typing import Any

from elman.compiler.cpu import build
from elman.compiler.cpu.step.memory import aligned

TIMES = 20_000_000
FORMS = {"fp32": ("float_operations", 4), "int8": ("byte_operations", 1)}


def roofline(threads: int, weights: int, form: str = "fp32", rounds: int = 5) -> dict[str, float]:
    """Of a model with so many weights in matrices: 1e9 operations and bytes a second, and the tokens a second that
    follow for one row (each weight is read) and for many (each is multiplied)."""
    shared = build.library((Path(__file__).parent / "roofline.cpp").read_text(), "scalar_math.h")
    name, size = FORMS[form]

    def best(function: Any, *given: Any) -> float:
        function.restype = ctypes.c_double
        return max(function(*given) for _ in range(rounds))

    count, times = ctypes.c_int64(threads), ctypes.c_int64(TIMES)
    operations = best(getattr(shared, name), count, times)
    memory = aligned(weights * size).fill_(1)
    place = ctypes.c_void_p(memory.data_ptr())
    read = best(shared.bytes_read, count, place, ctypes.c_int64(memory.nbytes), ctypes.c_int64(20))
    return {
        "gigaoperations": operations / 1e9,
        "gigabytes": read / 1e9,
        "tokens_per_second_of_one_row": read / memory.nbytes,
        "tokens_per_second_of_many": operations / (2 * weights),
    }
