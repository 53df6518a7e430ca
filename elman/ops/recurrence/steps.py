"""What compilers of steps share: a cell's step, read once; the weights it uses in this sequence; the way through it."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from elman.ops.recurrence.units import CannotCompile, Program, ending
from elman.shapes import Sequence, State

_steps: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, bool], Program | str]] = WeakKeyDictionary()


def step_of(cell: Any, ragged: bool = False, careful: bool = False) -> Program | str:
    """The program of the cell's step, or the reason why it has none; for rows of unequal length if `ragged`."""
    from elman.ops.recurrence.reading import read  # torch's tracer takes long to import

    known = _steps.setdefault(cell, {})
    key = cell.training, ragged, careful
    if key not in known:
        try:
            step = read(cell, careful)
            known[key] = ending(step) if ragged else step
        except CannotCompile as reason:
            known[key] = f"{cell.name} cannot be compiled: {reason}"
    return known[key]


def weights_of(cell: Any, step: Program) -> dict[str, Tensor]:
    """Parameters and buffers that the step reads, by name."""
    vectors = [node.detail[0] for node in step.nodes if node.op == "vector"]
    matrices = [matrix.parameter for node in step.nodes if node.op == "product" for matrix in node.detail]
    return {name: _in_use(cell, name) for name in dict.fromkeys([*vectors, *matrices])}


def _in_use(cell: Any, name: str) -> Tensor:
    """A parameter, or what stands for it in this sequence while weights are dropped."""
    path, _, leaf = name.rpartition(".")
    owner = cell.get_submodule(path)
    return owner.weight_in_use if leaf == "weight" and hasattr(owner, "weight_in_use") else getattr(owner, leaf)


class Way(NamedTuple):
    """What one walk through a sequence is given."""

    drive: Tensor
    state: State
    weights: dict[str, Tensor]


def walked(passes: Any, settings: tuple[Any, ...], ways: list[Way]) -> list[tuple[Sequence, State]]:
    """Each way's outputs and last state, by an autograd function that knows only tensors.

    It takes (*settings, whether a derivative may be asked for, names of weights), then for each way the drive, the
    parts of the state and the weights; it gives for each way the outputs and the parts of the last state.
    """
    flat = [pytree.tree_flatten(way.state) for way in ways]
    pairs = zip(ways, flat, strict=True)
    tensors = [one for way, (parts, _) in pairs for one in (way.drive, *parts, *way.weights.values())]
    saving = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    results = iter(passes.apply((*settings, saving, tuple(ways[0].weights)), *tensors))
    found = []
    for parts, form in flat:
        outputs = next(results)
        finals = [next(results).to(part.dtype) for part in parts]
        found.append((outputs, pytree.tree_unflatten(finals, form)))
    return found
