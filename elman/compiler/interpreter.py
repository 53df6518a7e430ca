"""Unit programs computed by torch over any leading axes: the judge of kernels, and products of all steps at once."""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from elman.compiler.aligned_matmul import linear, summed_products
from elman.compiler.ir import Matrix, Program, reached
from elman.compiler.pointwise import computed


def evaluate(
    program: Program, wanted: Iterable[int], leaf: Callable[[int], Tensor], weights: Mapping[str, Tensor]
) -> dict[int, Tensor]:
    """The wanted nodes, each (..., H), or (..., 1) where all units share a number.

    `leaf` gives loads, states and `going`; `weights` are the parameters.
    """
    values: dict[int, Tensor] = {}
    groups = together(program)
    for index in sorted(reached(program.nodes, wanted)):
        node = program.nodes[index]
        if index in values:
            continue
        if node.op in ("load", "state", "going"):
            values[index] = leaf(index)
        elif node.op == "constant":
            values[index] = torch.tensor(node.detail[0], dtype=torch.float64)
        elif node.op == "vector":
            values[index] = vector(weights[node.detail[0]], node.detail[1], program.size)
        elif node.op == "product":
            group = groups[node.args]
            whole = multiplied(program, group, values.__getitem__, weights)
            values.update(zip(group, whole.split(program.size, dim=-1), strict=True))
        elif node.op == "total":
            arg = values[node.args[0]]
            values[index] = arg.expand(*arg.shape[:-1], program.size).sum(-1, keepdim=True)
        else:
            values[index] = computed(node.op, [values[arg] for arg in node.args])
    return {index: values[index] for index in wanted}


def settled(program: Program, index: int) -> float:
    """What a node is that is the same everywhere and always."""
    node = program.nodes[index]
    if node.op == "constant":
        return node.detail[0]
    return float(computed(node.op, [settled(program, arg) for arg in node.args]))


def vector(parameter: Tensor, part: int, size: int) -> Tensor:
    return parameter.reshape(-1, size)[part]


def block(parameter: Tensor, matrix: Matrix, size: int, count: int = 1) -> Tensor:
    """The block such that its product is `linear(value, block)`, or as many below each other."""
    rows, columns = matrix.row * size, matrix.column * size
    if not (rows or columns) and parameter.shape == (count * size, size):
        found = parameter
    else:
        found = parameter[rows : rows + count * size, columns : columns + size]
    return found.t() if matrix.flipped else found


@cache
def runs(matrices: tuple[Matrix, ...]) -> list[tuple[Matrix, int]]:
    """Blocks that stand below each other in a parameter: the first of them, and how many."""
    found: list[tuple[Matrix, int]] = []
    for one in matrices:
        first, count = found[-1] if found else (one, 0)
        if count and not one.flipped and one == first._replace(row=first.row + count):
            found[-1] = first, count + 1
        else:
            found.append((one, 1))
    return found


def together(program: Program, among: Container[int] | None = None) -> dict[tuple[int, ...], list[int]]:
    """Products of the same values, by these values; only those `among` some nodes."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, node in enumerate(program.nodes):
        if node.op == "product" and (among is None or index in among):
            groups.setdefault(node.args, []).append(index)
    return groups


def multiplied(
    program: Program, group: list[int], value: Callable[[int], Tensor], weights: Mapping[str, Tensor]
) -> Tensor:
    """Products of the same values, side by side."""
    total: Tensor | None = None
    for place, arg in enumerate(program.nodes[group[0]].args):
        joined = stacked(program, group, place, weights)
        product = linear(value(arg).to(joined.dtype), joined)
        total = product if total is None else total + product
    assert total is not None
    return total


def stacked(program: Program, group: list[int], place: int, weights: Mapping[str, Tensor]) -> Tensor:
    """The matrices by which one argument reaches several products, as one (m·H, H)."""
    matrices = runs(tuple(program.nodes[index].detail[place] for index in group))
    found = [block(weights[matrix.parameter], matrix, program.size, count) for matrix, count in matrices]
    return found[0] if len(found) == 1 else torch.cat(found)


def matrix_gradients(
    program: Program,
    groups: Mapping[tuple[int, ...], list[int]],
    adjoint: Callable[[list[int]], Tensor],
    value: Callable[[int], Tensor],
    weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Gradients of the matrices by which `groups` of products hear, from all rows of all steps at once.

    `adjoint` gives those of several products side by side (rows, m·H); `value` a node (rows, H).
    """
    size = program.size
    found: dict[str, Tensor] = {}
    for args, group in groups.items():
        for place, arg in enumerate(args):
            matrices = runs(tuple(program.nodes[index].detail[place] for index in group))
            whole = summed_products(adjoint(group), value(arg))
            parts = [whole] if len(matrices) == 1 else whole.split([count * size for _, count in matrices])
            for (matrix, count), part in zip(matrices, parts, strict=True):
                name, weight = matrix.parameter, weights[matrix.parameter]
                if name not in found and not matrix.flipped and weight.shape == (count * size, size):
                    found[name] = part.to(weight.dtype)
                    continue
                if name not in found:
                    found[name] = torch.zeros_like(weight)
                block(found[name], matrix, size, count).add_(part)
    return found


def joined(whole: Tensor, places: list[int]) -> Tensor:
    """Some places (batch, time, places, H) side by side; those that lie so already are not copied."""
    if places == list(range(whole.shape[2])):
        return whole.flatten(2)
    borders = [n for n in range(1, len(places)) if places[n] != places[n - 1] + 1]
    # slices, since a list of places would have to be sent to the device first
    found = [whole[:, :, places[a] : places[b - 1] + 1] for a, b in pairwise([0, *borders, len(places)])]
    return (found[0] if len(found) == 1 else torch.cat(found, 2)).flatten(2)
