"""Compiles `model.step` at batch 1, traced without values, so that the program depends on shapes alone."""

from typing import Any

import torch
from torch import Tensor, fx
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from elman.compiler.cpu import build
from elman.compiler.cpu.step.lowering import LoweredStep, Weight, lower
from elman.compiler.cpu.step.matmul import pack
from elman.compiler.cpu.step.memory import aligned, pointers
from elman.compiler.cpu.step.program import SIGNATURE, of_one_row, padded
from elman.compiler.errors import CannotCompile
from elman.compiler.tracing import attributes_restored, trace, trace_error
from elman.ops.host_sync import FunctionModule
from elman.ops.state import map_state
from elman.ops.state import tensors as parts_of


class CompiledStep:
    """`step(token, state) -> (logits, state)` in machine code, of rows with states of their own; a `Runner` runs it for
    one row, a `RowRunner` for many."""

    def __init__(self, lowered: LoweredStep, parameters: list[Tensor]):
        self.lowered = lowered
        self.library = build.library(lowered.source)
        runtime = build.runtime()
        self.library.set_kernels(runtime.gemm_fp32, runtime.gemm_int8, runtime.each_row)
        self.renew(parameters)

    def renew(self, parameters: list[Tensor]) -> None:
        """Packs the weights again, after the model's have changed."""
        arrays = weight_arrays(self.lowered, parameters)
        packed = [n for n, weight in enumerate(self.lowered.weights) if weight.format != "plain"]
        sizes = [padded(arrays[n].nbytes) for n in packed]
        self.arena = aligned(sum(sizes))
        start = 0
        for n, size in zip(packed, sizes, strict=True):
            array = arrays[n]
            arrays[n] = self.arena[start : start + array.nbytes].copy_(array)
            start += size
        self.arrays = arrays
        self.weights = pointers(arrays)


def compile_step(model: Any, weights: str = "fp32", example: Tensor | None = None) -> CompiledStep:
    """Compiles `model.step` with weights in fp32 or int8; raises `CannotCompile` with the reason.

    `example`: one of the step's input; by default a token.
    """
    return CompiledStep(*lower_step(model, weights, example))


def lower_step(model: Any, weights: str = "fp32", example: Tensor | None = None) -> tuple[LoweredStep, list[Tensor]]:
    """The C++ of `model.step`, and the tensors of the model that it is made for."""
    module = FunctionModule(model, model.step)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        raise CannotCompile("the model is not on the CPU")
    token = torch.zeros(1, dtype=torch.long) if example is None else example
    if hasattr(model, "machine_code"):
        return handwritten(model, tensors, token), list(tensors.values())
    try:
        with attributes_restored(module), sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng([]):
            # zeros with memory of their own: an initial state may be an expanded view
            state = map_state(lambda part: torch.zeros(part.shape, dtype=part.dtype), model.initial_state(1))
            graph = trace(lambda values, *inputs: functional_call(module, values, inputs), tensors, token, state)
    except Exception as error:  # a tracer may fail in any way
        raise CannotCompile(f"the step cannot be traced: {trace_error(error)}") from error
    return lower(graph, len(tensors), weights), list(tensors.values())


def handwritten(model: Any, tensors: dict[str, Tensor], token: Tensor) -> LoweredStep:
    """The step of a model that provides its own C++ (`machine_code`); it reads all its tensors unpacked."""
    source, graph = of_one_row(model.machine_code(SIGNATURE)), fx.Graph()
    nodes = [graph.placeholder(f"given_{number}") for number in range(len(tensors))]
    state = model.initial_state(1)
    logits, _ = model.step(token, state)
    shapes = [part.to("meta") for _, part in parts_of(state)]
    weights = [Weight(node, one.to("meta"), "plain") for node, one in zip(nodes, tensors.values(), strict=True)]
    return LoweredStep(source, 0, weights, [], nodes, shapes, {}, token.to("meta"), logits.to("meta"))


def weight_arrays(lowered: LoweredStep, parameters: list[Tensor]) -> list[Tensor]:
    """What the program reads as its weights, packed for its kernels."""
    values = _constants(lowered, parameters)
    return [_array(weight, values[weight.node]) for weight in lowered.weights]


def _constants(lowered: LoweredStep, parameters: list[Tensor]) -> dict[fx.Node, Tensor]:
    """Folds constants: all nodes that depend on weights alone are computed once, by torch."""
    values: dict[fx.Node, Any] = dict(zip(lowered.parameters, parameters, strict=True))
    with torch.no_grad():
        for node in lowered.constants:
            if node.op == "call_function":
                keywords = {key: value for key, value in node.kwargs.items() if key not in ("device", "pin_memory")}
                values[node] = node.target(*fx.node.map_arg(node.args, values.__getitem__), **keywords)  # type: ignore
    return values


def _array(weight: Weight, value: Tensor) -> Tensor:
    value, layout = value.detach().resolve_conj().contiguous(), weight.layout
    if weight.format == "plain":
        if (value.shape, value.dtype) != (layout.shape, layout.dtype):
            raise ValueError(f"compiled for a weight of shape {tuple(layout.shape)}, not {tuple(value.shape)}")
        return value
    return pack(value.as_strided(layout.shape, layout.stride(), layout.storage_offset()), weight.format)
