"""The operations on single numbers that a unit program may hold: how torch computes each, and its derivatives.

A rule of derivation takes a builder, the arguments, the result and the result's adjoint, and gives an adjoint for each
argument, or None where the result does not change smoothly with it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elman.compiler.ir import Builder

Rule = Callable[[Builder, tuple[int, ...], int, int], list[int | None]]


def _spread(value: Tensor) -> Tensor:
    return value


COMPUTED: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "where": lambda condition, one, other: torch.where(condition.bool(), one, other),  # a settled one is a number
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_not": torch.logical_not,
    "spread": _spread,
}
UNSMOOTH = {"lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_not", "sign"}


def adjoints(builder: Builder, op: str, args: tuple[int, ...], result: int, adjoint: int) -> list[int | None]:
    """What the arguments of a pointwise operation receive."""
    return [None] * len(args) if op in UNSMOOTH else RULES[op](builder, args, result, adjoint)


def _chosen(b: Builder, condition: int, d: int) -> list[int | None]:
    zero = b.constant(0)
    return [b.node("where", condition, d, zero), b.node("where", condition, zero, d)]


def _larger(b: Builder, args: tuple[int, ...], result: int, d: int) -> list[int | None]:
    return _chosen(b, b.node("ge", *args), d)


def _smaller(b: Builder, args: tuple[int, ...], result: int, d: int) -> list[int | None]:
    return _chosen(b, b.node("le", *args), d)


def _div(b: Builder, args: tuple[int, ...], result: int, d: int) -> list[int | None]:
    share = b.node("div", d, args[1])
    return [share, b.node("neg", b.mul(share, result))]


def _slope(slope: Callable[[Builder, int, int], int]) -> Rule:
    """The rule of a function of one number, from its slope at (argument, result)."""
    return lambda b, args, result, d: [b.mul(d, slope(b, args[0], result))]


def _one_minus(b: Builder, a: int) -> int:
    return b.sub(b.constant(1), a)


RULES: dict[str, Rule] = {
    "add": lambda b, args, result, d: [d, d],
    "sub": lambda b, args, result, d: [d, b.node("neg", d)],
    "mul": lambda b, args, result, d: [b.mul(d, args[1]), b.mul(d, args[0])],
    "div": _div,
    "maximum": _larger,
    "minimum": _smaller,
    "where": lambda b, args, result, d: [None, *_chosen(b, args[0], d)],
    "neg": lambda b, args, result, d: [b.node("neg", d)],
    "spread": lambda b, args, result, d: [d],
    "abs": _slope(lambda b, x, y: b.node("sign", x)),
    "sigmoid": _slope(lambda b, x, y: b.mul(y, _one_minus(b, y))),
    "tanh": _slope(lambda b, x, y: _one_minus(b, b.mul(y, y))),
    "relu": lambda b, args, result, d: [b.node("where", b.node("gt", args[0], b.constant(0)), d, b.constant(0))],
    "exp": _slope(lambda b, x, y: y),
    "expm1": _slope(lambda b, x, y: b.add(y, b.constant(1))),
    "log": lambda b, args, result, d: [b.node("div", d, args[0])],
    "log1p": lambda b, args, result, d: [b.node("div", d, b.add(args[0], b.constant(1)))],
    "sqrt": lambda b, args, result, d: [b.node("div", b.times(d, 0.5), result)],
    "rsqrt": _slope(lambda b, x, y: b.times(b.mul(y, b.mul(y, y)), -0.5)),
    "reciprocal": _slope(lambda b, x, y: b.node("neg", b.mul(y, y))),
    "sin": _slope(lambda b, x, y: b.node("cos", x)),
    "cos": _slope(lambda b, x, y: b.node("neg", b.node("sin", x))),
    "erf": _slope(lambda b, x, y: b.times(b.node("exp", b.node("neg", b.mul(x, x))), 2 / math.sqrt(math.pi))),
}


def computed(op: str, args: list[Any]) -> Tensor:
    """By torch; numbers among the arguments become tensors, since not every function takes them."""
    whole = [arg if isinstance(arg, Tensor) else torch.tensor(arg, dtype=torch.float64) for arg in args]
    return COMPUTED[op](*whole)
