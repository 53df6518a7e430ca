"""Tables shared by both C++ emitters: C types, and the C expression of each element-wise ATen operation."""

import torch

from elman.compiler.errors import CannotCompile

C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
    torch.complex64: "complex",
}
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
