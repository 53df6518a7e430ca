"""Interprets the IR with torch, over any leading axes: the reference for kernels, and matmuls of all steps at once."""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache, reduce
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.compiler.ir import MatrixBlock, StepIR, dependencies

# elements: 16 bytes in half precision. A GPU is several times slower on unaligned rows: a matmul of all steps at once
# at 1150 units takes 1.05 µs a step, and 0.27 µs with padded rows.
ALIGNMENT = 8
Weights = Mapping[str, Tensor]  # by parameter
Values = Callable[[int], Tensor]  # of a node
Groups = Mapping[tuple[int, ...], list[int]]  # matmuls by their arguments
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


def evaluate(program: StepIR, wanted: Iterable[int], leaf: Values, weights: Weights) -> dict[int, Tensor]:
    """The values of the wanted nodes: (..., H), or (..., 1) for ROW values.

    `leaf` gives loads, states and `active`; `weights` are the parameters.
    """
    values: dict[int, Tensor] = {}
    for index in sorted(dependencies(program.nodes, wanted)):
        node = program.nodes[index]
        if node.op in ("load", "state", "active"):
            values[index] = leaf(index)
        elif node.op == "constant":
            values[index] = torch.tensor(node.detail[0], dtype=torch.float64)
        elif node.op == "vector":
            values[index] = parameter_vector(weights[node.detail[0]], node.detail[1], program.size)
        elif node.op == "matmul":
            operands = [view_block(weights[block.parameter], block, program.size) for block in node.detail]
            pairs = zip(node.args, operands, strict=True)
            values[index] = reduce(torch.add, (F.linear(values[arg].to(one.dtype), one) for arg, one in pairs))
        elif node.op == "sum":
            arg = values[node.args[0]]
            values[index] = arg.expand(*arg.shape[:-1], program.size).sum(-1, keepdim=True)
        else:
            values[index] = apply(node.op, [values[arg] for arg in node.args])
    return {index: values[index] for index in wanted}


def apply(op: str, args: list[Any]) -> Tensor:
    """The operation in torch; Python numbers become tensors, since not every function takes them."""
    tensors = [arg if isinstance(arg, Tensor) else torch.tensor(arg, dtype=torch.float64) for arg in args]
    return TORCH_FUNCTIONS[op](*tensors)


def fold_constant(program: StepIR, index: int) -> float:
    """The value of a node of shape CONSTANT (constant folding)."""
    node = program.nodes[index]
    if node.op == "constant":
        return node.detail[0]
    return float(apply(node.op, [fold_constant(program, arg) for arg in node.args]))


def parameter_vector(parameter: Tensor, part: int, size: int) -> Tensor:
    return parameter.reshape(-1, size)[part]


def view_block(parameter: Tensor, matrix: MatrixBlock, size: int, count: int = 1) -> Tensor:
    """The weight of `F.linear` for a block, or for `count` blocks below each other."""
    rows, columns = matrix.row * size, matrix.column * size
    if not (rows or columns) and parameter.shape == (count * size, size):
        view = parameter
    else:
        view = parameter[rows : rows + count * size, columns : columns + size]
    return view.t() if matrix.flipped else view


@cache
def adjacent_blocks(blocks: tuple[MatrixBlock, ...]) -> list[tuple[MatrixBlock, int]]:
    """Runs of blocks that lie below each other in a parameter: the first of each, and how many."""
    runs: list[tuple[MatrixBlock, int]] = []
    for one in blocks:
        first, count = runs[-1] if runs else (one, 0)
        if count and not one.flipped and one == first._replace(row=first.row + count):
            runs[-1] = first, count + 1
        else:
            runs.append((one, 1))
    return runs


def group_matmuls(program: StepIR, among: Container[int] | None = None) -> dict[tuple[int, ...], list[int]]:
    """Matmuls by their arguments: those of the same arguments can be one GEMM. Only those `among` some nodes."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, node in enumerate(program.nodes):
        if node.op == "matmul" and (among is None or index in among):
            groups.setdefault(node.args, []).append(index)
    return groups


def matrix_gradients(
    program: StepIR, groups: Groups, adjoint: Callable[[list[int]], Tensor], value: Values, weights: Weights
) -> dict[str, Tensor]:
    """Gradients of the matrices of `groups` of matmuls, from all rows of all steps at once.

    `adjoint` gives those of several matmuls, concatenated (rows, m·H); `value` the value of a node (rows, H).
    """
    size = program.size
    gradients: dict[str, Tensor] = {}
    for args, group in groups.items():
        for position, arg in enumerate(args):
            blocks = adjacent_blocks(tuple(program.nodes[index].detail[position] for index in group))
            whole = matmul_transposed(adjoint(group), value(arg))
            parts = [whole] if len(blocks) == 1 else whole.split([count * size for _, count in blocks])
            for (block, count), part in zip(blocks, parts, strict=True):
                name, weight = block.parameter, weights[block.parameter]
                if name not in gradients and not block.flipped and weight.shape == (count * size, size):
                    gradients[name] = part.to(weight.dtype)
                    continue
                if name not in gradients:
                    gradients[name] = torch.zeros_like(weight)
                view_block(gradients[name], block, size, count).add_(part)
    return gradients


def concat_slots(tensor: Tensor, slots: list[int]) -> Tensor:
    """Some slots of (batch, time, slots, H), concatenated; adjacent ones are not copied."""
    if slots == list(range(tensor.shape[2])):
        return tensor.flatten(2)
    borders = [n for n in range(1, len(slots)) if slots[n] != slots[n - 1] + 1]
    # slices, since a list of indices would have to be copied to the device first
    found = [tensor[:, :, slots[a] : slots[b - 1] + 1] for a, b in pairwise([0, *borders, len(slots)])]
    return (found[0] if len(found) == 1 else torch.cat(found, 2)).flatten(2)


def misaligned(x: Tensor) -> bool:
    return x.shape[-1] % ALIGNMENT > 0


def aligned_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` with zero-padded operands."""
    return F.linear(_padded(x), _padded(weight), bias)


def matmul_transposed(left: Tensor, right: Tensor) -> Tensor:
    """leftᵀ @ right, with zero-padded operands."""
    product = torch.mm(_padded(left).t(), _padded(right))
    return product[: left.shape[1], : right.shape[1]]


def _padded(x: Tensor) -> Tensor:
    return F.pad(x, (0, -x.shape[-1] % ALIGNMENT)) if misaligned(x) else x
