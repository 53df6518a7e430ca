"""Unit programs computed by torch over any leading axes: the judge of kernels, and what is parallel in time."""

from collections.abc import Callable, Container, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from elman.ops.recurrence.pointwise import computed
from elman.ops.recurrence.units import Matrix, Node, Program, reached


def evaluate(
    program: Program,
    wanted: Iterable[int],
    leaf: Callable[[int], Tensor],
    weights: Mapping[str, Tensor],
    known: Container[int] = (),
    kind: torch.dtype | None = None,
) -> dict[int, Tensor]:
    """The wanted nodes, each (..., H), or (..., 1) where all units share a number.

    `leaf` gives loads, states, `going`, and what is `known` and needs no computing; `weights` are the parameters.
    Products of the same values are one product, which goes on in `kind`.
    """
    wanted = list(wanted)
    groups = together(program)
    values: dict[int, Tensor] = {}
    nodes = [Node("known") if index in known else node for index, node in enumerate(program.nodes)]
    for index in sorted(reached(nodes, wanted)):
        node = nodes[index]
        if index in values:
            continue
        if node.op in ("known", "load", "state", "going"):
            values[index] = leaf(index)
        elif node.op == "constant":
            values[index] = torch.tensor(node.detail[0], dtype=torch.float64)
        elif node.op == "vector":
            values[index] = vector(weights[node.detail[0]], node.detail[1], program.size)
        elif node.op == "product":
            found = _products(program, groups[node.args], values, weights)
            values.update({each: value.to(kind or value.dtype) for each, value in found.items()})
        elif node.op == "total":
            arg = values[node.args[0]]
            values[index] = arg.expand(*arg.shape[:-1], program.size).sum(-1, keepdim=True)
        else:
            values[index] = computed(node.op, [values[arg] for arg in node.args])
    return {index: values[index] for index in wanted}


def vector(parameter: Tensor, part: int, size: int) -> Tensor:
    return parameter.reshape(-1, size)[part]


def block(parameter: Tensor, matrix: Matrix, size: int) -> Tensor:
    """The block such that its product is `linear(value, block)`."""
    found = parameter[matrix.row * size : (matrix.row + 1) * size, matrix.column * size : (matrix.column + 1) * size]
    return found.t() if matrix.flipped else found


def together(program: Program) -> dict[tuple[int, ...], list[int]]:
    """Products of the same values, by these values."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, node in enumerate(program.nodes):
        if node.op == "product":
            groups.setdefault(node.args, []).append(index)
    return groups


def _products(
    program: Program, group: list[int], values: Mapping[int, Tensor], weights: Mapping[str, Tensor]
) -> dict[int, Tensor]:
    args = program.nodes[group[0]].args
    total: Tensor | None = None
    for place, arg in enumerate(args):
        joined = stacked(program, group, place, weights)
        product = F.linear(values[arg].to(joined.dtype), joined)
        total = product if total is None else total + product
    assert total is not None
    return dict(zip(group, total.split(program.size, dim=-1), strict=True))


def stacked(program: Program, group: list[int], place: int, weights: Mapping[str, Tensor]) -> Tensor:
    """The matrices by which one argument reaches several products, as one (m·H, H)."""
    matrices = [program.nodes[index].detail[place] for index in group]
    return torch.cat([block(weights[matrix.parameter], matrix, program.size) for matrix in matrices])


def add_matrix_gradients(
    program: Program,
    products: tuple[int, ...],
    adjoint: Callable[[list[int]], Tensor],
    value: Callable[[int], Tensor],
    gradients: Mapping[str, Tensor],
) -> None:
    """Adds to the gradients of matrices, from all rows of all steps at once.

    `adjoint` gives those of several products side by side (rows, m·H); `value` a node (rows, H).
    """
    size = program.size
    for args, group in together(program).items():
        known = [index for index in group if index in products]
        for place, arg in enumerate(args):
            if not known:
                continue
            parts = torch.mm(adjoint(known).t(), value(arg)).split(size)
            for index, part in zip(known, parts, strict=True):
                matrix = program.nodes[index].detail[place]
                if matrix.parameter in gradients:
                    block(gradients[matrix.parameter], matrix, size).add_(part)
