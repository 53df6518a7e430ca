"""Compiles `model.step` at batch 1, traced without values, so that the program depends on shapes alone.

A Runner runs it: one step per call, or a whole sampling loop in C++ without returning to Python.
"""

import ctypes
import mmap
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from elman.compiler.cpu import build
from elman.compiler.cpu.step.lowering import ALIGNMENT, SIGNATURE, LoweredStep, Weight, lower
from elman.compiler.cpu.step.matmul import pack
from elman.compiler.errors import CannotCompile
from elman.compiler.tracing import attributes_restored, trace, trace_error
from elman.ops.host_sync import FunctionModule
from elman.ops.state import map_state
from elman.ops.state import tensors as parts_of

HUGE = 2**21  # bytes of a huge page: fewer TLB misses while weights stream in


class CompiledStep:
    """`step(token, state) -> (logits, state)` in machine code, at batch 1; a `Runner` runs it."""

    def __init__(self, lowered: LoweredStep, parameters: list[Tensor]):
        self.lowered = lowered
        self.library = build.library(lowered.source)
        self.renew(parameters)

    def renew(self, parameters: list[Tensor]) -> None:
        """Packs the weights again, after the model's have changed."""
        values = _constants(self.lowered, parameters)
        arrays = [_array(weight, values[weight.node]) for weight in self.lowered.weights]
        packed = [n for n, weight in enumerate(self.lowered.weights) if weight.format != "plain"]
        sizes = [-(-arrays[n].nbytes // ALIGNMENT) * ALIGNMENT for n in packed]
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
    module = FunctionModule(model, model.step)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        raise CannotCompile("the model is not on the CPU")
    token = torch.zeros(1, dtype=torch.long) if example is None else example
    if hasattr(model, "machine_code"):
        return CompiledStep(handwritten(model, tensors, token), list(tensors.values()))
    try:
        with attributes_restored(module), sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng([]):
            # zeros with memory of their own: an initial state may be an expanded view
            state = map_state(lambda part: torch.zeros(part.shape, dtype=part.dtype), model.initial_state(1))
            graph = trace(lambda values, *inputs: functional_call(module, values, inputs), tensors, token, state)
    except Exception as error:  # a tracer may fail in any way
        raise CannotCompile(f"the step cannot be traced: {trace_error(error)}") from error
    return CompiledStep(lower(graph, len(tensors), weights), list(tensors.values()))


def handwritten(model: Any, tensors: dict[str, Tensor], token: Tensor) -> LoweredStep:
    """The step of a model that provides its own C++ (`machine_code`); it reads all its tensors unpacked."""
    source, graph = model.machine_code(SIGNATURE), fx.Graph()
    nodes = [graph.placeholder(f"given_{number}") for number in range(len(tensors))]
    state = model.initial_state(1)
    logits, _ = model.step(token, state)
    shapes = [part.to("meta") for _, part in parts_of(state)]
    weights = [Weight(node, one.to("meta"), "plain") for node, one in zip(nodes, tensors.values(), strict=True)]
    return LoweredStep(source, 0, weights, [], nodes, shapes, {}, token.to("meta"), logits.to("meta"))


def address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def pointers(tensors: list[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def aligned(size: int) -> Tensor:
    """Zeroed memory, page-aligned, in huge pages where the system has them."""
    memory = mmap.mmap(-1, max(size, 1) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE
    return whole[start : start + size]


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


class Rules(ctypes.Structure):
    """Sampling settings as a C struct; see `elman.generation.sampling` for their meaning."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "top_k", "window", "end", "start", "stops", "excluded")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "penalty")),
    ]


class Runner:
    """A compiled step with its state, double-buffered: each step reads one copy and writes the other."""

    def __init__(self, program: CompiledStep, state: list[Tensor]):
        self.program, like = program, program.lowered
        shapes, known = ([tuple(part.shape) for part in parts] for parts in (state, like.state))
        assert shapes == known, f"the state has shapes {shapes}; the program needs {known}"
        self._memory = [self._allocate(number, part) for number, part in enumerate(state)]
        self._pointers = [pointers([pair[side] for pair in self._memory]) for side in (0, 1)]
        self.input = torch.empty(like.input.shape, dtype=like.input.dtype)
        self.output = torch.empty(like.output.shape, dtype=like.output.dtype)
        self._scratch_memory = aligned(like.scratch)
        self._scratch = address(self._scratch_memory)
        self._input_address, self._output = address(self.input), address(self.output)
        self._now = 0

    def _allocate(self, number: int, part: Tensor) -> tuple[Tensor, Tensor]:
        """A copy of a part of the state, and memory for its next value: the same memory for a sliding window."""
        like, window = self.program.lowered.state[number], self.program.lowered.windows.get(number)
        if window is None:
            return part.to(like.dtype, copy=True).contiguous(), torch.empty(like.shape, dtype=like.dtype)
        strip = window.allocate(like.dtype)
        window.view(strip, like.dtype).copy_(part)
        return strip, strip

    @property
    def state(self) -> list[Tensor]:
        """The state after the last step. Later steps overwrite it."""
        lowered = self.program.lowered
        return [
            lowered.windows[n].view(pair[0], lowered.state[n].dtype) if n in lowered.windows else pair[self._now]
            for n, pair in enumerate(self._memory)
        ]

    def step(self, x: Tensor) -> Tensor:
        """The output, which the next step overwrites."""
        self.input.copy_(x)
        self.advance()
        return self.output

    def advance(self) -> None:
        """One step from `input` to `output`."""
        before, after = self._pointers[self._now], self._pointers[1 - self._now]
        self.program.library.step(self.program.weights, self._scratch, self._input_address, before, after, self._output)
        self._now = 1 - self._now

    def _step_arguments(self) -> tuple[Any, ...]:
        """What the loops of sampling.h need to take steps."""
        before, after = self._pointers[self._now], self._pointers[1 - self._now]
        return self.program.library.step, self.program.weights, self._scratch, before, after, self._output

    def run(self, rules: Rules, uniforms: Tensor, recent: Tensor, final: bool) -> tuple[list[int], list[float]]:
        """Samples tokens and steps on, one for each uniform random number, or until the end-of-text token.

        Returns the tokens and their log-probabilities. With `final`, the last token is not stepped on. Where logits are
        not finite, the last log-probability is NaN.
        """
        count = len(uniforms)
        tokens, log_probs = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.double)
        work = torch.empty(2 * rules.vocab)
        given = *map(address, (uniforms, recent, work)), ctypes.c_int64(count), ctypes.c_int64(final)
        results = map(address, (tokens, log_probs))
        chosen = build.runtime().run(*self._step_arguments(), ctypes.byref(rules), *given, *results)
        broken = chosen < count and bool(log_probs[chosen].isnan())
        ended = chosen > 0 and rules.stops and int(tokens[chosen - 1]) == rules.end
        steps = chosen - bool(not broken and (ended or (final and chosen == count)))
        self._now = (self._now + steps) % 2
        return tokens[:chosen].tolist(), log_probs[: chosen + broken].tolist()

    def follow(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Steps through all inputs; returns -log p(target | inputs so far) in nats, in float64."""
        count, vocab = len(inputs), self.output.shape[-1]
        if count and not (targets.min() >= 0 and targets.max() < vocab):
            raise ValueError(f"a target is not among the {vocab} tokens")
        nats, work = torch.empty(count, dtype=torch.double), torch.empty(vocab)
        inputs, targets = inputs.contiguous(), targets.contiguous()
        given = ctypes.c_int64(vocab), *map(address, (inputs, targets, work)), ctypes.c_int64(count)
        build.runtime().follow(*self._step_arguments(), *given, address(nats))
        self._now = (self._now + count) % 2
        return nats
