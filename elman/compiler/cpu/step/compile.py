"""From a module that steps to a program: traced, with nobody looking at numbers, so that it depends on shapes alone."""

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from elman.compiler.cpu.step.lowering import SIGNATURE, Lowered, Weight, lower
from elman.compiler.cpu.step.program import Program
from elman.compiler.errors import CannotCompile
from elman.compiler.tracing import left_alone, trace, why_untraced
from elman.ops.state import map_state
from elman.ops.state import tensors as parts_of
from elman.shapes import State


class _Step(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(token, state)


def compile_step(model: Any, weights: str = "fp32", given: Tensor | None = None) -> Program:
    """A program for `model.step` at batch 1, with weights in float32 or 8 bits; `CannotCompile` says why there is none.

    Models are given a token, layers a vector: then an example of it is needed.
    """
    module = _Step(model)
    tensors = named_tensors(module)
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        raise CannotCompile("the model is not on the CPU")
    token = torch.zeros(1, dtype=torch.long) if given is None else given
    if hasattr(model, "machine_code"):
        return Program(written(model, tensors, token), list(tensors.values()))
    try:
        with left_alone(module), sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng([]):
            graph = trace(
                lambda parameters, token, state: functional_call(module, parameters, (token, state)),
                tensors,
                token,
                map_state(_dense, model.initial_state(1)),
            )
    except Exception as error:  # whatever a tracer cannot follow
        raise CannotCompile(f"the step cannot be traced: {why_untraced(error)}") from error
    return Program(lower(graph, len(tensors), weights), list(tensors.values()))


def written(model: Any, tensors: dict[str, Tensor], token: Tensor) -> Lowered:
    """Of a model that writes its step itself, in C++: it reads all its tensors as they are, in their order."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"given_{number}") for number in range(len(tensors))]
    state = model.initial_state(1)
    logits, _ = model.step(token, state)
    shapes = [part.to("meta") for _, part in parts_of(state)]
    weights = [Weight(node, one.to("meta"), "plain") for node, one in zip(nodes, tensors.values(), strict=True)]
    source = model.machine_code(SIGNATURE)
    return Lowered(source, 0, weights, [], nodes, shapes, {}, token.to("meta"), logits.to("meta"))


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _dense(part: Tensor) -> Tensor:
    """With memory of its own, whose places are not known to be all the same."""
    return torch.zeros(part.shape, dtype=part.dtype)
