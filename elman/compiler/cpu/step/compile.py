"""Compiles `model.step` at batch 1: traced without values, so that the program depends on shapes alone."""

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from elman.compiler.cpu.step.lowering import SIGNATURE, LoweredStep, Weight, lower
from elman.compiler.cpu.step.program import CompiledStep
from elman.compiler.errors import CannotCompile
from elman.compiler.tracing import attributes_restored, trace, trace_error
from elman.ops.state import map_state
from elman.ops.state import tensors as parts_of
from elman.shapes import State


class _Step(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(token, state)


def compile_step(model: Any, weights: str = "fp32", example: Tensor | None = None) -> CompiledStep:
    """Compiles `model.step` with weights in fp32 or int8; raises `CannotCompile` with the reason.

    `example`: one of the step's input; by default a token.
    """
    module = _Step(model)
    tensors = named_tensors(module)
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        raise CannotCompile("the model is not on the CPU")
    token = torch.zeros(1, dtype=torch.long) if example is None else example
    if hasattr(model, "machine_code"):
        return CompiledStep(handwritten(model, tensors, token), list(tensors.values()))
    try:
        with attributes_restored(module), sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng([]):
            graph = trace(
                lambda parameters, token, state: functional_call(module, parameters, (token, state)),
                tensors,
                token,
                map_state(_contiguous, model.initial_state(1)),
            )
    except Exception as error:  # a tracer may fail in any way
        raise CannotCompile(f"the step cannot be traced: {trace_error(error)}") from error
    return CompiledStep(lower(graph, len(tensors), weights), list(tensors.values()))


def handwritten(model: Any, tensors: dict[str, Tensor], token: Tensor) -> LoweredStep:
    """The step of a model that provides its own C++ (`machine_code`); it reads all its tensors unpacked."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"given_{number}") for number in range(len(tensors))]
    state = model.initial_state(1)
    logits, _ = model.step(token, state)
    shapes = [part.to("meta") for _, part in parts_of(state)]
    weights = [Weight(node, one.to("meta"), "plain") for node, one in zip(nodes, tensors.values(), strict=True)]
    source = model.machine_code(SIGNATURE)
    return LoweredStep(source, 0, weights, [], nodes, shapes, {}, token.to("meta"), logits.to("meta"))


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _contiguous(part: Tensor) -> Tensor:
    """Zeros with memory of their own: an initial state may be an expanded view."""
    return torch.zeros(part.shape, dtype=part.dtype)
