"""From a module that steps to a program: traced without numbers, so that it depends on shapes and not on weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from elman.ops.native.lowering import lower
from elman.ops.native.memory import CannotCompile
from elman.ops.native.program import Program
from elman.ops.state import map_state
from elman.ops.tracing import trace
from elman.shapes import State


class _Step(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(token, state)


def compile_step(model: Any, weights: str = "fp32") -> Program:
    """A program for `model.step` at batch 1, with weights in float32 or 8 bits; `CannotCompile` says why there is none."""
    module = _Step(model)
    given = named_tensors(module)
    if any(tensor.device.type != "cpu" for tensor in given.values()):
        raise CannotCompile("the model is not on the CPU")
    state = map_state(_shape, model.initial_state(1))
    try:
        graph = trace(
            lambda parameters, token, state: functional_call(module, parameters, (token, state)),
            {name: _shape(tensor) for name, tensor in given.items()},
            torch.empty(1, dtype=torch.long, device="meta"),
            state,
            numbers=False,
        )
    except Exception as error:  # whatever a tracer cannot follow
        raise CannotCompile(f"the step cannot be traced: {str(error).strip().partition(chr(10))[0][:200]}") from error
    return Program(lower(graph, len(given), weights), list(given.values()))


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _shape(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
