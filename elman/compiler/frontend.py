"""Front end of the compiler: from a cell's `step` in Python to the IR.

    cell.step  --trace-->  graph of ATen operations  --symbolic execution-->  StepIR  --verify-->  checked StepIR
               (tracing)   (decompositions)            (symbolic, aten)

Symbolic execution splits every tensor into parts of width H (`symbolic.SymbolicTensor`). Views, splits and
concatenations on part boundaries leave no trace in the IR. What the IR cannot express raises `CannotCompile`.

Verification is a differential test of the IR against the Python step: equal values and gradients on random inputs.
A tracer sees which values were computed. It does not see that a gradient was detached or replaced, nor that a value
came from Python's or numpy's random generator. Such a step must be rejected, not compiled to something else.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from elman.compiler.aten import AtenInterpreter
from elman.compiler.errors import CannotCompile
from elman.compiler.interpreter import evaluate
from elman.compiler.ir import StepIR
from elman.compiler.tracing import attributes_restored, trace, trace_error
from elman.ops.host_sync import FunctionModule
from elman.ops.state import leaves, with_leaves

Examples = tuple[dict[str, Tensor], Tensor, Any]  # parameters and buffers by name, drive, state
PREFIX = "module."  # of their names in FunctionModule
DRIVE_ROWS = 16  # a multiple of 16, so that the GPU kernels of this call are those used later
MIN_BATCH = 101  # of the example inputs
ROWS = 2  # of the random inputs
TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3  # relative to the largest value: far above float32 rounding


def trace_cell(cell: Any, two_pass_variance: bool = False) -> StepIR:
    """The IR of `cell.step`: its loads are ("drive", part), its output is the cell's.

    `two_pass_variance`: a variance is the mean of (x - mean)², which costs a second reduction but loses no digits; else
    it is mean(x²) - mean(x)².
    """
    graph, step, (values, drive, state) = _traced(cell)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    interpreter = AtenInterpreter(cell.hidden_size, len(drive), two_pass_variance)
    for node, name in zip(inputs, values, strict=False):
        interpreter.parameter(node, name.removeprefix(PREFIX))
    interpreter.drive(inputs[len(values)])
    parts = inputs[len(values) + 1 :]
    for part, node in enumerate(parts):
        interpreter.state(node, part)
    for node in graph.nodes:
        if node.op == "call_function":
            interpreter.lower(node)
        elif node.op == "get_attr":
            raise CannotCompile("its step reads a tensor that is neither a parameter nor a buffer")
    output, *next_state = [interpreter.result(node) for node in list(graph.nodes)[-1].args[0]]
    if len(next_state) != len(parts):
        raise CannotCompile(f"its step returns {len(next_state)} parts of state, and its state has {len(parts)}")
    if len(set(next_state)) < len(next_state):
        raise CannotCompile("two parts of its state are always equal")
    program = interpreter.builder.finish(next_state, [output])
    with torch.device("cpu"), _plain(cell):
        try:
            verify(program, step, (values, drive, state), {PREFIX + name: one for name, one in cell.named_buffers()})
        except RuntimeError as error:
            raise CannotCompile(f"its step fails on random inputs: {trace_error(error)}") from error
    return program


def _traced(cell: Any) -> tuple[fx.Graph, Callable[..., Any], Examples]:
    """The graph of the step as a function of parameters and buffers, drive and state; that function; its examples."""
    known = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    module = FunctionModule(cell, cell.step)

    def step(values: dict[str, Tensor], drive: Tensor, state: Any) -> Any:
        return torch.func.functional_call(module, values, (drive, state))

    try:
        with _plain(cell):
            weight = next(iter(known.values()))
            driven = cell.drive(torch.zeros(DRIVE_ROWS, cell.input_size, dtype=weight.dtype, device=weight.device))
            old = cell.initial_state(1)
            shapes = [driven.shape[1:], *(part.shape[1:] for part in leaves(old))]
            known_shapes = [one.shape for one in known.values()]
            lengths = [length for shape in (*known_shapes, *shapes) for length in shape if length]
            # a multiple of no other axis length, so that the batch axis is recognized by its size
            rows = next(rows for rows in count(MIN_BATCH) if all(length % rows for length in lengths))
            # the default device is that of tensors the step creates
            with attributes_restored(cell), torch.device("cpu"), torch.random.fork_rng([]):
                values = {PREFIX + name: torch.zeros(one.shape) for name, one in known.items()}
                drive, *parts = (torch.zeros(rows, *shape) for shape in shapes)
                state = with_leaves(old, parts)
                graph = trace(step, values, drive, state)
    except Exception as error:  # a tracer may fail in any way; each means the same to us
        raise CannotCompile(f"its step cannot be traced: {trace_error(error)}") from error
    if dtypes := {part.dtype for part in leaves(old)} - {cell.zeros(1).dtype}:
        raise CannotCompile(f"its state is kept in {dtypes.pop()}, not in {cell.zeros(1).dtype}")
    return graph, step, (values, drive, state)


@contextmanager
def _plain(cell: nn.Module) -> Iterator[None]:
    """Without autocast, and without weight dropout: the dropped-out weights of a sequence are hidden (`thinned`)."""
    modules = [module for module in cell.modules() if isinstance(getattr(module, "thinned", None), Tensor)]
    thinned = {module: module.thinned for module in modules}
    for module in thinned:
        module.thinned = None  # type: ignore[assignment]
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        for module, weights in thinned.items():
            module.thinned = weights


def verify(program: StepIR, step: Callable[..., Any], examples: Examples, buffers: dict[str, Tensor]) -> None:
    """Raises `CannotCompile` unless `program` equals `step(values, drive, state)`.

    `examples` give the shapes. Buffers keep their values; parameters, drive and state are random with a fixed seed, so
    the answer depends on the equations and not on what was learned.
    """
    values, drive, state = examples
    generator = torch.Generator().manual_seed(1)

    def random(like: Tensor, scale: float = 1.0) -> Tensor:
        return (torch.randn(like.shape, generator=generator) * scale).requires_grad_()

    with torch.inference_mode(False), torch.enable_grad():
        parameters = {name: random(one, program.size**-0.5) for name, one in values.items() if name not in buffers}
        values = {**parameters, **{name: one.detach().cpu().clone() for name, one in buffers.items()}}
        drive, *parts = (random(part[:1].expand(ROWS, *part.shape[1:])) for part in (drive, *leaves(state)))
        expected = pytree.tree_leaves(step(values, drive, with_leaves(state, parts)))

        def leaf(index: int) -> Tensor:
            node = program.nodes[index]
            return parts[node.detail[0]] if node.op == "state" else drive.split(program.size, -1)[node.detail[1]]

        results = [*program.outputs, *program.next_state]
        weights = {name.removeprefix(PREFIX): value.float() for name, value in values.items()}
        computed = evaluate(program, results, leaf, weights)
        actual = [computed[index].float().expand(ROWS, program.size) for index in results]
        if any(part.dtype != torch.float32 for part in expected) or not _close(actual, expected, TOLERANCE):
            raise CannotCompile(
                "its step returns other values than its traced operations: a step may not use Python's or numpy's "
                "random numbers or arithmetic, keep values outside of its state, or return another dtype"
            )
        inputs = [drive, *parts, *parameters.values()]
        if not _close(_gradients(actual, inputs), _gradients(expected, inputs), GRADIENT_TOLERANCE):
            raise CannotCompile(
                "its step has other gradients than its traced operations: detach, no_grad and autograd.Function "
                "are not supported"
            )


def _gradients(results: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a weighted sum of all elements; the weights differ by unit."""
    total = torch.stack([(part * torch.linspace(1, 2, part.shape[-1])).sum() for part in results]).sum()
    if not total.requires_grad:
        return [torch.zeros_like(part) for part in inputs]
    return list(torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True))


def _close(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> bool:
    for one, other in zip(map(Tensor.detach, actual), map(Tensor.detach, expected), strict=True):
        scale = float(other.abs().nan_to_num(0, 0, 0).max().clamp(min=1)) if other.numel() else 1.0
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return False
    return True
