"""A program beside the step it was read from: on numbers drawn once, both give the same, and the same gradients.

A tracer sees which numbers were computed, and not that a gradient was cut or replaced, or that a number was drawn by
Python. Nothing of this may be lost in silence.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from elman.compiler.errors import CannotCompile
from elman.compiler.interpreter import evaluate
from elman.compiler.ir import Program

ROWS = 2
CLOSE, CLOSE_GRADIENTS = 1e-4, 1e-3  # shares of the largest number: far above what float32 rounds away


def check(
    program: Program, step: Callable[..., Any], examples: tuple[dict[str, Tensor], Tensor, Any], kept: dict[str, Tensor]
) -> None:
    """Of `step(values, drive, state)`: the examples tell shapes; of the values, buffers are `kept`, all else is drawn.

    It is drawn from a seed, so that the answer depends on the equations alone and not on what was learned.
    """
    values, drive, state = examples
    random = torch.Generator().manual_seed(1)

    def drawn(like: Tensor, scale: float = 1.0) -> Tensor:
        return (torch.randn(like.shape, generator=random) * scale).requires_grad_()

    with torch.inference_mode(False), torch.enable_grad():
        learned = {name: drawn(one, program.size**-0.5) for name, one in values.items() if name not in kept}
        values = {**learned, **{name: one.detach().cpu().clone() for name, one in kept.items()}}
        parts, form = pytree.tree_flatten(state)
        drive, *parts = (drawn(part[:1].expand(ROWS, *part.shape[1:])) for part in (drive, *parts))
        expected = pytree.tree_leaves(step(values, drive, pytree.tree_unflatten(parts, form)))

        def leaf(index: int) -> Tensor:
            node = program.nodes[index]
            return parts[node.detail[0]] if node.op == "state" else drive.split(program.size, -1)[node.detail[1]]

        results = [*program.given, *program.carried]
        weights = {name.removeprefix("cell."): value.float() for name, value in values.items()}
        computed = evaluate(program, results, leaf, weights)
        found = [computed[index].float().expand(ROWS, program.size) for index in results]
        if any(part.dtype != torch.float32 for part in expected) or not _close(found, expected, CLOSE):
            raise CannotCompile(
                "its step gives other numbers than the operations that were read of it: none of them may be drawn "
                "or computed by Python or numpy, be kept outside of the state, or be given in another type"
            )
        varied = [drive, *parts, *learned.values()]
        if not _close(_slopes(found, varied), _slopes(expected, varied), CLOSE_GRADIENTS):
            raise CannotCompile(
                "its step has other gradients than the operations that were read of it: detach, no_grad and "
                "autograd.Function are not seen"
            )


def _slopes(outcomes: Sequence[Tensor], varied: Sequence[Tensor]) -> list[Tensor]:
    """Of all numbers, weighted by their place."""
    total = torch.stack([(part * torch.linspace(1, 2, part.shape[-1])).sum() for part in outcomes]).sum()
    if not total.requires_grad:
        return [torch.zeros_like(part) for part in varied]
    return list(torch.autograd.grad(total, varied, allow_unused=True, materialize_grads=True))


def _close(found: Sequence[Tensor], expected: Sequence[Tensor], share: float) -> bool:
    for one, other in zip(map(Tensor.detach, found), map(Tensor.detach, expected), strict=True):
        scale = float(other.abs().nan_to_num(0, 0, 0).max().clamp(min=1)) if other.numel() else 1.0
        if not torch.allclose(one, other, rtol=share, atol=share * scale, equal_nan=True):
            return False
    return True
