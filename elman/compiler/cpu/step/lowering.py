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
from elman.compiler.cpu.step.aten import AtenLowering
from elman.compiler.cpu.step.buffers import Buffer, SlidingWindow, Value, find_windows
from elman.compiler.cpu.step.loops import LoopFuser
from elman.compiler.cpu.step.program import of_rows, pointer
from elman.compiler.errors import CannotCompile


class Weight(NamedTuple):
    """A constant of the program: the value of a node, as it is or packed for a kernel."""

    node: fx.Node
    layout: Tensor
    format: str  # plain, fp32, int8, or rows (in 8 bits too)


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
    return _StepLowering(graph, parameters, weights).program()


class _StepLowering:
    def __init__(self, graph: fx.Graph, parameters: int, weights: str):
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.parameters, (self.input, *self.state) = inputs[:parameters], inputs[parameters:]
        (results,) = (node.args[0] for node in graph.nodes if node.op == "output")
        self.output, following = results[0], results[1:]
        self.constant = _constants(graph, set(inputs[parameters:]))
        self.graph, self.following = graph, following
        self.fuser = LoopFuser()
        self.aten = AtenLowering(self.fuser, weights)
        self.plain: dict[Buffer, fx.Node] = {}  # constants that are read as they are
        self.values: dict[fx.Node, Any] = {}
        _check_state(self.state, following)
        self.appends = find_windows(self.state, following)
        self.windows = {node.all_input_nodes[0]: window for node, window in self.appends.items()}

    def program(self) -> LoweredStep:
        for number, node in enumerate([self.input, *self.state]):
            value = node.meta["val"]
            shape = self.windows[node].shape if node in self.windows else value.shape
            buffer = Buffer(f"s{number}", "given" if node is self.input else "state", math.prod(shape), value.dtype)
            self.values[node] = Value.contiguous(buffer, shape)
        needed = _ancestors(self.following)
        computed = [node for node in self.graph.nodes if node.op == "call_function" and node not in self.constant]
        written: dict[str, Value] = {}  # by its memory
        self.lower_nodes([node for node in computed if node in needed])
        for number, node in enumerate(self.following):
            if self.state[number] not in self.windows:
                written[f"row.next[{number}]"] = _write(self.fuser, self.value_of(node), written)
        divided = self.fuser.divide()
        self.lower_nodes([node for node in computed if node not in needed])
        written["row.output"] = _write(self.fuser, self.value_of(self.output), written)
        self.fuser.mark_live()

        used = [(buffer, node) for buffer, node in self.plain.items() if buffer in self.fuser.live]
        constants = [Weight(node, self.values[node].layout, "plain") for _, node in used]
        packs = [Weight(self.plain[matrix.buffer], matrix.layout, format) for matrix, format in self.aten.packed]
        places = [(buffer, f"weights[{n}]") for n, (buffer, _) in enumerate(used)]
        places += [(value.buffer, memory) for memory, value in written.items()]
        opening = self.window_addresses(places)
        pointers = {buffer.name: pointer(buffer, memory) for buffer, memory in places}
        pointers |= {f"p{n}": f"const void* __restrict p{n} = weights[{len(used) + n}];" for n in range(len(packs))}
        source, scratch = of_rows(self.fuser, divided, opening, pointers)
        return LoweredStep(
            source=source,
            scratch=scratch,
            weights=constants + packs,
            constants=[node for node in self.graph.nodes if node in self.constant],
            parameters=self.parameters,
            state=[node.meta["val"] for node in self.state],
            windows={number: self.windows[node] for number, node in enumerate(self.state) if node in self.windows},
            input=self.input.meta["val"],
            output=self.output.meta["val"],
        )

    def value_of(self, node: fx.Node) -> Any:
        if node not in self.values:
            assert node in self.constant, f"{node} is not computed yet"
            buffer = Buffer(f"w{len(self.plain)}", "weights", node.meta["val"].numel(), node.meta["val"].dtype)
            self.plain[buffer] = node
            self.values[node] = Value.contiguous(buffer, node.meta["val"].shape)
        return self.values[node]

    def lower_nodes(self, nodes: list[fx.Node]) -> None:
        for node in nodes:
            arguments: Any = fx.node.map_arg(node.args, self.value_of)
            if node.target.__name__ == "getitem":  # type: ignore[union-attr]
                self.values[node] = arguments[0][arguments[1]]
            elif node in self.appends:
                self.values[node] = self.aten.append(arguments[0], self.appends[node])
            else:
                keywords: Any = fx.node.map_arg(node.kwargs, self.value_of)
                self.values[node] = self.aten.lower(node, arguments, keywords)

    def window_addresses(self, places: list[tuple[Buffer, str]]) -> list[str]:
        """Adds the memory of the input and the state. Windows move once per step; the lines that do it, and keep their
        addresses in scratch memory."""
        places.append((self.values[self.input].buffer, "row.given"))
        lines: list[str] = []
        for number, node in enumerate(self.state):
            memory, buffer = f"row.state[{number}]", self.values[node].buffer
            if node in self.windows:
                kept = f"((void**)row.scratch)[{len(lines)}]"
                lines.append(f"{kept} = {self.windows[node].pointer(c_type(buffer.dtype), memory)};")
                memory = kept
            places.append((buffer, memory))
        return lines


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
