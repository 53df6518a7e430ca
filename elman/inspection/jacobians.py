"""Jacobians of single steps, d(state after) / d(state before): spectral norm and spectral radius.

Gradients through time are products of these matrices. With norms below one every product shrinks; with a radius above
one products can grow, unless the nonlinearity saturates (Pascanu et al., 2013).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.layers import SequenceLayer
from elman.ops.state import map_state, tensors
from elman.shapes import State

LARGEST = 1024  # elements of a state up to which its Jacobian is computed
STEPS = 40  # evenly spaced steps that are analysed


class StepJacobian(NamedTuple):
    time: int
    norm: float  # largest singular value: growth of a small change in one step, at most
    radius: float  # largest modulus of an eigenvalue: growth per step if the step is repeated


def step_jacobians(layer: SequenceLayer, x: Tensor, steps: int = STEPS) -> list[StepJacobian]:
    """Along one sequence (time, width); empty for states of more than 1,024 elements, or of integers."""
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
    """As one matrix by a single backward pass: the batch has a copy of the state for each of its elements."""
    size = flat(state).shape[1]
    leaf_state = map_state(lambda part: part.detach().expand(size, *part.shape[1:]).clone().requires_grad_(), state)
    with torch.enable_grad():
        _, after = layer.step(token.expand(size, -1), leaf_state)
        own = flat(after).diagonal().sum()  # element i of copy i
        leaves = [part for _, part in tensors(leaf_state)]
        found = torch.autograd.grad(own, leaves, allow_unused=True)
    parts = [torch.zeros_like(leaf) if part is None else part for part, leaf in zip(found, leaves, strict=True)]
    return torch.cat([part.flatten(1) for part in parts], 1)


def flat(state: State) -> Tensor:
    return torch.cat([part.flatten(1) for _, part in tensors(state)], 1)


def layer_inputs(stack: Any, x: Tensor) -> Iterator[tuple[str, SequenceLayer, Tensor]]:
    """Name, layer and input of each causal layer of a stack, for embeddings (1, time, width)."""
    with torch.no_grad():
        x, state, _ = stack._bottom(x, stack.initial_state(len(x)), None)
        for index, block in enumerate(stack.blocks()):
            if not block.layer.causal:
                return
            leaf_state = block.before(x)
            yield f"layers.{index}.{block.kind}", block.layer, leaf_state[0]
            x = block.after(x, block.layer(leaf_state, state[index], None)[0])
