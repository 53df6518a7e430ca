"""Front end of the compiler: from a cell's `step` in Python to the IR.

    cell.step  --trace-->  graph of ATen operations  --symbolic execution-->  StepIR  --verify-->  checked StepIR
               (tracing)   (decompositions)            (symbolic, aten)

Symbolic execution splits every tensor into parts of width H (`symbolic.SymbolicTensor`). Views, splits and
concatenations on part boundaries leave no trace in the IR. What the IR cannot express raises `CannotCompile`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from elman.compiler.aten import lower_node
from elman.compiler.errors import CannotCompile
from elman.compiler.ir import StepIR
from elman.compiler.symbolic import SymbolicInterpreter
from elman.compiler.tracing import attributes_restored, trace, trace_error
from elman.compiler.verify import verify

DRIVE_ROWS = 16  # a multiple of 16, so that the GPU kernels of this call are those used later
MIN_BATCH = 101  # of the example inputs


def trace_cell(cell: Any, two_pass_variance: bool = False) -> StepIR:
    """The IR of `cell.step`: its loads are ("drive", part), its output is the cell's.

    `two_pass_variance`: a variance is the mean of (x - mean)², which costs a second reduction but loses no digits; else
    it is mean(x²) - mean(x)².
    """
    graph, names, parts, verify_program = _traced(cell)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    interpreter = SymbolicInterpreter(cell.hidden_size, len(inputs[len(names)].meta["val"]), two_pass_variance)
    for node, name in zip(inputs[: len(names)], names, strict=True):
        interpreter.parameter(node, name)
    interpreter.drive(inputs[len(names)])
    for part, node in enumerate(inputs[len(names) + 1 :]):
        interpreter.state(node, part)
    for node in graph.nodes:
        if node.op == "call_function":
            lower_node(interpreter, node)
        elif node.op == "get_attr":
            raise CannotCompile("its step reads a tensor that is neither a parameter nor a buffer")
    results = [interpreter.result(node) for node in list(graph.nodes)[-1].args[0]]
    if len(results) != parts + 1:
        raise CannotCompile(f"its step returns {len(results) - 1} parts of state, and its state has {parts}")
    output, *next_state = results
    if len(set(next_state)) < len(next_state):
        raise CannotCompile("two parts of its state are always equal")
    program = interpreter.builder.finish(next_state, [output])
    verify_program(program)
    return program


def _distinct_batch(shapes: list[torch.Size]) -> int:
    """A batch size of which no other axis length is a multiple, so that the batch axis is recognized by its size."""
    lengths = [length for shape in shapes for length in shape if length]
    return next(rows for rows in count(MIN_BATCH) if all(length % rows for length in lengths))


class _StepModule(nn.Module):
    def __init__(self, cell: Any):
        super().__init__()
        self.cell = cell

    def forward(self, drive: Tensor, state: Any) -> Any:
        return self.cell.step(drive, state)


def _traced(cell: Any) -> tuple[fx.Graph, list[str], int, Callable[[StepIR], None]]:
    """The graph, the names of its first inputs (parameters and buffers), the number of state parts, and a verifier."""
    known = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    module, cpu = _StepModule(cell), torch.device("cpu")  # the default device of tensors the step creates

    def step(values: dict[str, Tensor], drive: Tensor, state: Any) -> Any:
        return torch.func.functional_call(module, values, (drive, state))

    try:
        with _plain(cell):
            weight = next(iter(known.values()))
            driven = cell.drive(torch.zeros(DRIVE_ROWS, cell.input_size, dtype=weight.dtype, device=weight.device))
            old, spec = pytree.tree_flatten(cell.initial_state(1))
            shapes = [driven.shape[1:], *(part.shape[1:] for part in old)]
            rows = _distinct_batch([*(one.shape for one in known.values()), *shapes])
            with attributes_restored(cell), cpu, torch.random.fork_rng([]):
                values = {f"cell.{name}": torch.zeros(one.shape) for name, one in known.items()}
                drive, *parts = (torch.zeros(rows, *shape) for shape in shapes)
                state = pytree.tree_unflatten(parts, spec)
                graph = trace(step, values, drive, state)
    except Exception as error:  # a tracer may fail in any way; each means the same to us
        raise CannotCompile(f"its step cannot be traced: {trace_error(error)}") from error
    if dtypes := {part.dtype for part in old} - {cell.zeros(1).dtype}:
        raise CannotCompile(f"its state is kept in {dtypes.pop()}, not in {cell.zeros(1).dtype}")

    def verify_program(program: StepIR) -> None:
        with cpu, _plain(cell):
            buffers = {f"cell.{name}": value for name, value in cell.named_buffers()}
            try:
                verify(program, step, (values, drive, state), buffers)
            except RuntimeError as error:
                raise CannotCompile(f"its step fails on random inputs: {trace_error(error)}") from error

    return graph, list(known), len(old), verify_program


@contextmanager
def _plain(cell: nn.Module) -> Iterator[None]:
    """Without autocast, and without weight dropout: the dropped-out weights of a sequence are hidden (`thinned`)."""
    thinned = {
        module: module.thinned for module in cell.modules() if isinstance(getattr(module, "thinned", None), Tensor)
    }
    for module in thinned:
        module.thinned = None  # type: ignore[assignment]
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        for module, weights in thinned.items():
            module.thinned = weights
