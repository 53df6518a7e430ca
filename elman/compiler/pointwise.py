"""The element-wise operations of the IR: the torch function that computes each, and its vector-Jacobian product (VJP).

A VJP rule takes a builder, the arguments x, the result y and the adjoint d of y, and writes an adjoint for each
argument, or None where y is piecewise constant in it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elman.compiler.ir import IRBuilder

Rule = Callable[[IRBuilder, tuple[int, ...], int, int], list[int | None]]


# by the names that ATen and the IR share
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGICAL = ("logical_and", "logical_or", "logical_not")
UNARY = ("neg", "abs", "sign", "sigmoid", "tanh", "relu", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
NAMES = (*BINARY, *UNARY, "sin", "cos", "erf", *COMPARISONS, *LOGICAL)
TORCH_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in NAMES},
    "where": lambda condition, one, other: torch.where(condition.bool(), one, other),  # a folded constant is a float
    "broadcast": lambda value: value,
}
NON_DIFFERENTIABLE = {*COMPARISONS, *LOGICAL, "sign"}


def vjp(builder: IRBuilder, op: str, args: tuple[int, ...], result: int, adjoint: int) -> list[int | None]:
    """The adjoints of the arguments of an element-wise operation."""
    return [None] * len(args) if op in NON_DIFFERENTIABLE else VJP_RULES[op](builder, args, result, adjoint)


def _split_adjoint(b: IRBuilder, condition: int, d: int) -> list[int | None]:
    zero = b.constant(0)
    return [b.node("where", condition, d, zero), b.node("where", condition, zero, d)]


def _div(b: IRBuilder, args: tuple[int, ...], result: int, d: int) -> list[int | None]:
    share = b.node("div", d, args[1])
    return [share, b.node("neg", b.mul(share, result))]


def _derivative(slope: Callable[[IRBuilder, int, int], int]) -> Rule:
    """The VJP of a function of one argument, from its derivative at (x, y)."""
    return lambda b, args, result, d: [b.mul(d, slope(b, args[0], result))]


def _one_minus(b: IRBuilder, a: int) -> int:
    return b.sub(b.constant(1), a)


VJP_RULES: dict[str, Rule] = {
    "add": lambda b, args, result, d: [d, d],
    "sub": lambda b, args, result, d: [d, b.node("neg", d)],
    "mul": lambda b, args, result, d: [b.mul(d, args[1]), b.mul(d, args[0])],
    "div": _div,
    "maximum": lambda b, args, result, d: _split_adjoint(b, b.node("ge", *args), d),
    "minimum": lambda b, args, result, d: _split_adjoint(b, b.node("le", *args), d),
    "where": lambda b, args, result, d: [None, *_split_adjoint(b, args[0], d)],
    "neg": lambda b, args, result, d: [b.node("neg", d)],
    "broadcast": lambda b, args, result, d: [d],
    "abs": _derivative(lambda b, x, y: b.node("sign", x)),
    "sigmoid": _derivative(lambda b, x, y: b.mul(y, _one_minus(b, y))),
    "tanh": _derivative(lambda b, x, y: _one_minus(b, b.mul(y, y))),
    "relu": lambda b, args, result, d: [b.node("where", b.node("gt", args[0], b.constant(0)), d, b.constant(0))],
    "exp": _derivative(lambda b, x, y: y),
    "expm1": _derivative(lambda b, x, y: b.add(y, b.constant(1))),
    "log": lambda b, args, result, d: [b.node("div", d, args[0])],
    "log1p": lambda b, args, result, d: [b.node("div", d, b.add(args[0], b.constant(1)))],
    "sqrt": lambda b, args, result, d: [b.node("div", b.scale(d, 0.5), result)],
    "rsqrt": _derivative(lambda b, x, y: b.scale(b.mul(y, b.mul(y, y)), -0.5)),
    "reciprocal": _derivative(lambda b, x, y: b.node("neg", b.mul(y, y))),
    "sin": _derivative(lambda b, x, y: b.node("cos", x)),
    "cos": _derivative(lambda b, x, y: b.node("neg", b.node("sin", x))),
    "erf": _derivative(lambda b, x, y: b.scale(b.node("exp", b.node("neg", b.mul(x, x))), 2 / math.sqrt(math.pi))),
}


def apply(op: str, args: list[Any]) -> Tensor:
    """The operation in torch; Python numbers become tensors, since not every function takes them."""
    tensors = [arg if isinstance(arg, Tensor) else torch.tensor(arg, dtype=torch.float64) for arg in args]
    return TORCH_FUNCTIONS[op](*tensors)
