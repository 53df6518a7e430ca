"""From a cell to its unit program: the step is traced, and every tensor in it taken apart into parts of width H.

Views, splits and joins whose borders lie between parts disappear here. What does not fit raises `CannotCompile`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from elman.compiler.aten import operate
from elman.compiler.errors import CannotCompile
from elman.compiler.ir import Program
from elman.compiler.symbolic import Reader
from elman.compiler.tracing import left_alone, trace, why_untraced
from elman.compiler.verify import check

EVEN = 16  # rows of an input: kernels for them are those for most others
FEW = 101  # rows of an example


def read(cell: Any, careful: bool = False) -> Program:
    """The program of `cell.step`: loads are ("drive", part), what is given is the output.

    `careful`: variances are sums of squared distances from the mean, which takes one meeting of all units more.
    """
    graph, names, parts, confirm = _traced(cell)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    reader = Reader(cell.hidden_size, len(inputs[len(names)].meta["val"]), careful)
    for node, name in zip(inputs[: len(names)], names, strict=True):
        reader.parameter(node, name)
    reader.drive(inputs[len(names)])
    for number, node in enumerate(inputs[len(names) + 1 :]):
        reader.state(node, number)
    for node in graph.nodes:
        if node.op == "call_function":
            operate(reader, node)
        elif node.op == "get_attr":
            raise CannotCompile("its step holds a tensor that is neither parameter nor buffer")
    results = [reader.single(node) for node in list(graph.nodes)[-1].args[0]]
    if len(results) != parts + 1:
        raise CannotCompile(f"its step gives {len(results) - 1} parts of state for {parts}")
    output, *carried = results
    if len(set(carried)) < len(carried):
        raise CannotCompile("two parts of its state are always the same")
    program = reader.builder.program(carried, [output])
    confirm(program)
    return program


def _unmistakable(shapes: list[torch.Size]) -> int:
    """How many rows the example has, so that a shape tells which axis is which."""
    lengths = [length for shape in shapes for length in shape if length]
    return next(rows for rows in count(FEW) if all(length % rows for length in lengths))


class _Stepping(nn.Module):
    def __init__(self, cell: Any):
        super().__init__()
        self.cell = cell

    def forward(self, drive: Tensor, state: Any) -> Any:
        return self.cell.step(drive, state)


def _traced(cell: Any) -> tuple[fx.Graph, list[str], int, Callable[[Program], None]]:
    """The graph, the names of its first inputs (parameters and buffers), how many parts the state has, and a check."""
    known = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    stepping, here = _Stepping(cell), torch.device("cpu")  # whatever others take who name no device

    def step(values: dict[str, Tensor], drive: Tensor, state: Any) -> Any:
        return torch.func.functional_call(stepping, values, (drive, state))

    try:
        with _whole(cell), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            weight = next(iter(known.values()))
            driven = cell.drive(torch.zeros(EVEN, cell.input_size, dtype=weight.dtype, device=weight.device))
            old, form = pytree.tree_flatten(cell.initial_state(1))
            behind = [driven.shape[1:], *(part.shape[1:] for part in old)]
            rows = _unmistakable([*(one.shape for one in known.values()), *behind])
            with left_alone(cell), here, torch.random.fork_rng([]):
                values = {f"cell.{name}": torch.zeros(one.shape) for name, one in known.items()}
                drive, *parts = (torch.zeros(rows, *shape) for shape in behind)
                state = pytree.tree_unflatten(parts, form)
                graph = trace(step, values, drive, state)
    except Exception as error:  # a tracer may fail in any way; each means the same to us
        raise CannotCompile(f"its step cannot be traced: {why_untraced(error)}") from error
    if kinds := {part.dtype for part in old} - {cell.zeros(1).dtype}:
        raise CannotCompile(f"its state is kept in {kinds.pop()}, not in {cell.zeros(1).dtype}")

    def confirm(program: Program) -> None:
        with here, _whole(cell), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            kept = {f"cell.{name}": value for name, value in cell.named_buffers()}
            try:
                check(program, step, (values, drive, state), kept)
            except RuntimeError as error:
                raise CannotCompile(f"its step fails with numbers: {why_untraced(error)}") from error

    return graph, list(known), len(old), confirm


@contextmanager
def _whole(cell: nn.Module) -> Iterator[None]:
    """Without weights left out for the sequence at hand, which are no part of the equation."""
    thinned = {
        module: module.thinned for module in cell.modules() if isinstance(getattr(module, "thinned", None), Tensor)
    }
    for module in thinned:
        module.thinned = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, weights in thinned.items():
            module.thinned = weights
