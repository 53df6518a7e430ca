"""Lowers a traced step to a C++ program (program.py).

graph --constant folding--> nodes that depend on weights alone: computed once, by torch
      --AtenLowering------> fused loop nests and kernel calls (LoopFuser) over buffers in four memories:
                            weights | given (the input) | state, next | scratch
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from elman.compiler.cpu.build import c_type
from elman.compiler.cpu.step import program
from elman.compiler.cpu.step.aten import AtenLowering
from elman.compiler.cpu.step.buffers import Buffer, SlidingWindow, Value, find_windows
from elman.compiler.cpu.step.loops import LoopFuser
from elman.compiler.errors import CannotCompile

ALIGNMENT = 64  # bytes: a cache line, an AVX-512 register


class Weight(NamedTuple):
    """A constant of the program: the value of a node, as it is or packed for a kernel."""

    node: fx.Node
    layout: Tensor
    format: str  # plain, fp32 or int8


class LoweredStep(NamedTuple):
    source: str  # C++
    scratch: int  # bytes
    weights: list[Weight]
    constants: list[fx.Node]  # in topological order
    parameters: list[fx.Node]
    state: list[Tensor]  # shapes and types, on the meta device
    windows: dict[int, SlidingWindow]  # parts of the state that are sliding windows, by number
    input: Tensor
    output: Tensor


def lower(graph: fx.Graph, parameters: int, weights: str = "fp32") -> LoweredStep:
    """Lowers a graph with inputs (parameters, input, state) and outputs (logits or a layer's output, next state)."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    constant = _constants(graph, set(inputs[parameters:]))
    fuser = LoopFuser()
    lowering = AtenLowering(fuser, weights)
    plain: dict[Buffer, fx.Node] = {}
    values: dict[fx.Node, Any] = {}

    def value_of(node: fx.Node) -> Any:
        if node not in values:
            assert node in constant, f"{node} is not computed yet"
            buffer = Buffer(f"w{len(plain)}", "weights", node.meta["val"].numel(), node.meta["val"].dtype)
            plain[buffer] = node
            values[node] = Value.contiguous(buffer, node.meta["val"].shape)
        return values[node]

    input, *state = inputs[parameters:]
    (results,) = (node.args[0] for node in graph.nodes if node.op == "output")
    _check_state(state, results[1:])
    appends = find_windows(state, results[1:])
    windows = {node.all_input_nodes[0]: window for node, window in appends.items()}
    for number, node in enumerate([input, *state]):
        value = node.meta["val"]
        shape = windows[node].shape if node in windows else value.shape
        buffer = Buffer(f"s{number}", "given" if node is input else "state", math.prod(shape), value.dtype)
        values[node] = Value.contiguous(buffer, shape)
    needed = _ancestors(results[1:])
    written: dict[str, Value] = {}
    in_order = [node for node in graph.nodes if node.op == "call_function" and node not in constant]

    def lower_node(node: fx.Node) -> None:
        arguments = fx.node.map_arg(node.args, value_of)
        if node.target.__name__ == "getitem":
            values[node] = arguments[0][arguments[1]]
        elif node in appends:
            values[node] = lowering.append(arguments[0], appends[node])
        else:
            values[node] = lowering.lower(node, arguments, fx.node.map_arg(node.kwargs, value_of))

    for node in in_order:
        if node in needed:
            lower_node(node)
    for number, node in enumerate(results[1:]):
        if state[number] not in windows:
            written[f"row.next[{number}]"] = _write(fuser, value_of(node), written)
    divided = fuser.divide()
    for node in in_order:
        if node not in needed:
            lower_node(node)
    written["row.output"] = _write(fuser, value_of(results[0]), written)
    fuser.mark_live()

    used = [(buffer, node) for buffer, node in plain.items() if buffer in fuser.live]
    constants = [Weight(node, values[node].layout, "plain") for _, node in used]
    packs = [Weight(plain[matrix.buffer], matrix.layout, format) for matrix, format in lowering.packed]
    pointers = dict(_pointer(buffer, f"weights[{n}]") for n, (buffer, _) in enumerate(used))
    pointers |= {f"p{n}": f"const void* __restrict p{n} = weights[{len(used) + n}];" for n in range(len(packs))}
    pointers |= [_pointer(values[input].buffer, "row.given")]
    opening: list[str] = []
    for n, node in enumerate(state):
        memory, buffer = f"row.state[{n}]", values[node].buffer
        if node in windows:  # each step advances it once, and keeps its address in scratch memory
            address = f"((void**)row.scratch)[{len(opening)}]"
            opening.append(f"{address} = {windows[node].pointer(c_type(buffer.dtype), memory)};")
            memory = address
        pointers |= [_pointer(buffer, memory)]
    pointers |= [_pointer(value.buffer, memory) for memory, value in written.items()]
    scratch = padded(8 * len(opening))
    for buffer in fuser.scratch:
        if buffer not in {value.buffer for value in written.values()}:
            pointers |= [_pointer(buffer, f"(row.scratch + {scratch})")]
            scratch += padded(buffer.size * buffer.dtype.itemsize)
    return LoweredStep(
        source=program.of_rows(fuser, divided, opening, pointers),
        scratch=scratch,
        weights=constants + packs,
        constants=[node for node in graph.nodes if node in constant],
        parameters=inputs[:parameters],
        state=[node.meta["val"] for node in state],
        windows={number: windows[node] for number, node in enumerate(state) if node in windows},
        input=input.meta["val"],
        output=results[0].meta["val"],
    )


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _constants(graph: fx.Graph, changing: set[fx.Node]) -> set[fx.Node]:
    """Nodes that depend on neither the input nor the state."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            raise CannotCompile("the step reads a tensor that is neither a parameter nor a buffer of the model")
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CannotCompile(f"the step draws random numbers ({node.target.__name__.split('.')[0]})")
        if node.op != "output" and node not in changing and all(part in found for part in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(nodes: list[fx.Node]) -> set[fx.Node]:
    """All nodes that these depend on, and these."""
    found: set[fx.Node] = set()
    open_nodes = list(nodes)
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += node.all_input_nodes
    return found


def _check_state(state: list[fx.Node], following: list[Any]) -> None:
    """The next state must have the shapes and dtypes of the state, whose memory it takes."""
    if len(state) != len(following):
        raise CannotCompile(f"the state has {len(state)} parts, and {len(following)} after a step")
    for number, (old, new) in enumerate(zip(state, following, strict=True)):
        before, after = (f"{tuple(one.meta['val'].shape)} {one.meta['val'].dtype}" for one in (old, new))
        if before != after:
            raise CannotCompile(f"part {number} of the state is {before}, and {after} after a step")


def _write(fuser: LoopFuser, value: Value, written: dict[str, Value]) -> Value:
    """The value of a result: itself if its scratch buffer can be placed at the destination, else a copy."""
    taken = {other.buffer for other in written.values()}
    if value.buffer.memory != "scratch" or value.buffer in taken or not value.fills_its_buffer:
        copy = fuser.temporary(value.shape, value.dtype)
        fuser.assign("{0}", value.dtype, [value], copy)
        value = copy
    fuser.live.add(value.buffer)
    return value


def _pointer(buffer: Buffer, memory: str) -> tuple[str, str]:
    """The buffer's name, and the declaration of its pointer."""
    c_dtype = c_type(buffer.dtype)
    return buffer.name, f"{c_dtype}* __restrict {buffer.name} = ({c_dtype}*){memory};"
