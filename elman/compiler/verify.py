"""Differential test of an IR against the Python step it came from: equal values and equal gradients on random inputs.

A tracer sees which values were computed. It does not see that a gradient was detached or replaced, nor that a value
came from Python's or numpy's random generator. Such a step must be rejected, not compiled to something else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from elman.compiler.errors import CannotCompile
from elman.compiler.interpreter import evaluate
from elman.compiler.ir import StepIR

ROWS = 2
TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3  # relative to the largest value: far above float32 rounding


def verify(
    program: StepIR,
    step: Callable[..., Any],
    examples: tuple[dict[str, Tensor], Tensor, Any],
    buffers: dict[str, Tensor],
) -> None:
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
        parts, spec = pytree.tree_flatten(state)
        drive, *parts = (random(part[:1].expand(ROWS, *part.shape[1:])) for part in (drive, *parts))
        expected = pytree.tree_leaves(step(values, drive, pytree.tree_unflatten(parts, spec)))

        def leaf(index: int) -> Tensor:
            node = program.nodes[index]
            return parts[node.detail[0]] if node.op == "state" else drive.split(program.size, -1)[node.detail[1]]

        results = [*program.outputs, *program.next_state]
        weights = {name.removeprefix("cell."): value.float() for name, value in values.items()}
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
