"""The IR of a cell, traced once and cached, and the weights that it reads in the current sequence."""

from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from elman.compiler.errors import CannotCompile
from elman.compiler.ir import StepIR, mask_finished_rows

_cache: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, bool], StepIR | str]] = WeakKeyDictionary()


def step_ir(cell: Any, ragged: bool = False, two_pass_variance: bool = False) -> StepIR | str:
    """The IR of the cell's step, or the reason why it has none. `ragged`: for rows of unequal length."""
    from elman.compiler.frontend import trace_cell  # the tracer takes long to import

    known = _cache.setdefault(cell, {})
    key = cell.training, ragged, two_pass_variance
    if key not in known:
        try:
            step = trace_cell(cell, two_pass_variance)
            known[key] = mask_finished_rows(step) if ragged else step
        except CannotCompile as reason:
            known[key] = f"{cell.name} cannot be compiled: {reason}"
    return known[key]


def first_parameter(module: nn.Module) -> nn.Parameter:
    """`next(module.parameters())`, without its walk over all modules."""
    stack = [module]
    while stack:
        one = stack.pop()
        for parameter in one._parameters.values():
            if parameter is not None:
                return parameter
        stack += [child for child in reversed(one._modules.values()) if child is not None]
    raise AssertionError(f"{type(module).__name__} has no parameters")


def parameter_names(step: StepIR) -> tuple[str, ...]:
    """Parameters and buffers that the step reads."""
    vectors = [node.detail[0] for node in step.nodes if node.op == "vector"]
    matrices = [block.parameter for node in step.nodes if node.op == "matmul" for block in node.detail]
    return tuple(dict.fromkeys([*vectors, *matrices]))


def active_weight(cell: Any, name: str) -> Tensor:
    """A parameter, or its dropped-out version for this sequence (weight dropout)."""
    *path, leaf = name.split(".")
    owner = cell
    for part in path:
        owner = owner._modules[part]
    return getattr(owner, "weight_in_use" if leaf == "weight" and hasattr(type(owner), "weight_in_use") else leaf)
