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
EXPRESSIONS = {  # by ATen's name; the arguments have the type of the result
    "abs": "absolute({0})",
    "add": "({0} + {1})",
    "bitwise_and": "({0} & {1})",
    "bitwise_not": "(!{0})",
    "bitwise_or": "({0} | {1})",
    "clone": "{0}",
    "cos": "std::cos({0})",
    "div": "({0} / {1})",
    "erf": "error_function({0})",
    "exp": "exponential({0})",
    "ceil": "std::ceil({0})",
    "floor": "std::floor({0})",
    "expm1": "std::expm1({0})",
    "log": "std::log({0})",
    "log1p": "std::log1p({0})",
    "logical_and": "({0} && {1})",
    "logical_not": "(!{0})",
    "logical_or": "({0} || {1})",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "mul": "({0} * {1})",
    "neg": "(-{0})",
    "pow": "power({0}, {1})",
    "reciprocal": "(1 / {0})",
    "relu": "({0} < 0 ? 0 : {0})",
    "remainder": "modulo({0}, {1})",
    "rsqrt": "(1 / std::sqrt({0}))",
    "sigmoid": "sigmoid({0})",
    "sin": "std::sin({0})",
    "sqrt": "std::sqrt({0})",
    "sub": "({0} - {1})",
    "tanh": "hyperbolic_tangent({0})",
    "where": "({0} ? {1} : {2})",
    "_to_copy": "{0}",
}


def c_type(dtype: torch.dtype) -> str:
    if dtype not in C_TYPES:
        raise CannotCompile(f"dtype {str(dtype).removeprefix('torch.')} is not supported")
    return C_TYPES[dtype]
