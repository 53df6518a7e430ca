"""What every compiler of steps begins with: a cell's step, read once, and the weights it uses in this sequence."""

from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from elman.compiler.errors import CannotCompile
from elman.compiler.ir import Program, ending

_steps: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, bool], Program | str]] = WeakKeyDictionary()


def step_of(cell: Any, ragged: bool = False, careful: bool = False) -> Program | str:
    """The program of the cell's step, or the reason why it has none; for rows of unequal length if `ragged`."""
    from elman.compiler.frontend import read  # torch's tracer takes long to import

    known = _steps.setdefault(cell, {})
    key = cell.training, ragged, careful
    if key not in known:
        try:
            step = read(cell, careful)
            known[key] = ending(step) if ragged else step
        except CannotCompile as reason:
            known[key] = f"{cell.name} cannot be compiled: {reason}"
    return known[key]


def first_parameter(module: nn.Module) -> nn.Parameter:
    """The first of `module.parameters()`, without the look at all modules that it begins with."""
    waiting = [module]
    while waiting:
        one = waiting.pop()
        for parameter in one._parameters.values():
            if parameter is not None:
                return parameter
        waiting += [child for child in reversed(one._modules.values()) if child is not None]
    raise AssertionError(f"{type(module).__name__} has no parameters")


def names_of(step: Program) -> tuple[str, ...]:
    """Parameters and buffers that the step reads."""
    vectors = [node.detail[0] for node in step.nodes if node.op == "vector"]
    matrices = [matrix.parameter for node in step.nodes if node.op == "product" for matrix in node.detail]
    return tuple(dict.fromkeys([*vectors, *matrices]))


def in_use(cell: Any, name: str) -> Tensor:
    """A parameter, or what stands for it in this sequence while weights are dropped."""
    *path, leaf = name.split(".")
    owner = cell
    for part in path:
        owner = owner._modules[part]
    return getattr(owner, "weight_in_use" if leaf == "weight" and hasattr(type(owner), "weight_in_use") else leaf)
