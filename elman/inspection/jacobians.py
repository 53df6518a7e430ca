"""From one state to the next: the Jacobian of each step, its norm and its spectral radius.

Gradients through time are products of these matrices. Norms below one shrink every product; a radius above one lets
some grow, unless the nonlinearity saturates.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.layers import SequenceLayer
from elman.ops.state import map_state, tensors
from elman.shapes import State

LARGEST = 1024  # numbers of a state whose Jacobian is still worth its memory
STEPS = 40  # steps that are looked at, evenly spread


class StepJacobian(NamedTuple):
    time: int
    norm: float  # the largest factor by which a small change can grow in one step
    radius: float  # the factor by which it grows if the step is repeated


def step_jacobians(layer: SequenceLayer, x: Tensor, steps: int = STEPS) -> list[StepJacobian]:
    """Of one sequence (time, width); nothing for a state that is no vector of at most 1,024 numbers."""
    state = layer.initial_state(1)
    if not has_vector_state(state):
        return []
    every = max(1, len(x) // steps)
    found = []
    for time, token in enumerate(x.detach()):
        if time % every == every - 1:
            matrix = jacobian(layer, token, state)
            values = torch.linalg.svdvals(matrix), torch.linalg.eigvals(matrix).abs()
            found.append(StepJacobian(time, *(float(part.max()) for part in values)))
        with torch.no_grad():
            _, state = layer.step(token.unsqueeze(0), state)
    return found


def has_vector_state(state: State) -> bool:
    parts = [part for _, part in tensors(state)]
    whole = sum(part[0].numel() for part in parts)
    return 0 < whole <= LARGEST and all(part.is_floating_point() for part in parts)


def jacobian(layer: SequenceLayer, token: Tensor, state: State) -> Tensor:
    """d(state after the token) / d(state before it), as one matrix: as many copies as numbers, one backward pass."""
    size = flat(state).shape[1]
    given = map_state(lambda part: part.detach().expand(size, *part.shape[1:]).clone().requires_grad_(), state)
    with torch.enable_grad():
        _, after = layer.step(token.expand(size, -1), given)
        own = flat(after).diagonal().sum()  # copy i asks for number i
        leaves = [part for _, part in tensors(given)]
        found = torch.autograd.grad(own, leaves, allow_unused=True)
    parts = [torch.zeros_like(leaf) if part is None else part for part, leaf in zip(found, leaves, strict=True)]
    return torch.cat([part.flatten(1) for part in parts], 1)


def flat(state: State) -> Tensor:
    return torch.cat([part.flatten(1) for _, part in tensors(state)], 1)


def layer_inputs(stack: Any, x: Tensor) -> Iterator[tuple[str, SequenceLayer, Tensor]]:
    """Each causal layer of a stack with its name and what comes into it, for word vectors (1, time, width)."""
    with torch.no_grad():
        x, state, _ = stack._bottom(x, stack.initial_state(len(x)), None)
        for index, block in enumerate(stack.blocks()):
            if not block.layer.causal:
                return
            given = block.before(x)
            yield f"layers.{index}.{block.kind}", block.layer, given[0]
            x = block.after(x, block.layer(given, state[index], None)[0])
