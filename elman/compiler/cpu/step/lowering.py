"""From a traced step to C++: what depends on weights alone is left to torch, once; the rest becomes one function."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from elman.compiler.cpu.step.aten import Operations
from elman.compiler.cpu.step.buffers import Buffer, Value, c_type
from elman.compiler.cpu.step.loops import LoopWriter
from elman.compiler.cpu.step.sliding_window import Slide, find_slides
from elman.compiler.errors import CannotCompile

ALIGNMENT = 64  # bytes: a vector register, a cache line


class Weight(NamedTuple):
    """A constant of the program: the result of a node, as it is or packed for a kernel."""

    node: fx.Node
    layout: Tensor
    form: str  # plain, fp32 or int8


class Lowered(NamedTuple):
    source: str  # C++
    scratch: int  # bytes
    weights: list[Weight]
    constants: list[fx.Node]  # in the order in which they are computed
    parameters: list[fx.Node]
    state: list[Tensor]  # shapes and types, on the meta device
    slides: dict[int, Slide]  # parts of the state that move on in their memory, by number
    given: Tensor
    output: Tensor


def lower(graph: fx.Graph, parameters: int, weights: str = "fp32") -> Lowered:
    """Of a graph whose inputs are so many parameters, what is given (a token, a vector) and the state.

    Its outputs are logits, or whatever a layer gives, and the new state.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    constant = _constants(graph, set(inputs[parameters:]))
    writer = LoopWriter()
    operations = Operations(writer, weights)
    plain: dict[Buffer, fx.Node] = {}
    values: dict[fx.Node, Any] = {}

    def value_of(node: fx.Node) -> Any:
        if node not in values:
            assert node in constant, f"{node} is not computed yet"
            buffer = Buffer(f"w{len(plain)}", "weights", node.meta["val"].numel(), node.meta["val"].dtype)
            plain[buffer] = node
            values[node] = Value.whole(buffer, node.meta["val"].shape)
        return values[node]

    given, *state = inputs[parameters:]
    (results,) = (node.args[0] for node in graph.nodes if node.op == "output")
    _keeps_its_kind(state, results[1:])
    joins = find_slides(state, results[1:])
    slides = {node.all_input_nodes[0]: slide for node, slide in joins.items()}
    for number, node in enumerate([given, *state]):
        value = node.meta["val"]
        shape = slides[node].shape if node in slides else value.shape
        buffer = Buffer(f"s{number}", "given" if node is given else "state", math.prod(shape), value.dtype)
        values[node] = Value.whole(buffer, shape)
    for node in graph.nodes:
        if node.op != "call_function" or node in constant:
            continue
        arguments = fx.node.map_arg(node.args, value_of)
        if node.target.__name__ == "getitem":
            values[node] = arguments[0][arguments[1]]
        elif node in joins:
            values[node] = operations.append(arguments[0], joins[node])
        else:
            values[node] = operations.compute(node, arguments, fx.node.map_arg(node.kwargs, value_of))
    moved = [node in slides for node in state]
    outputs = [None if done else value_of(node) for node, done in zip(results, [False, *moved], strict=True)]
    places = _write_outputs(writer, outputs)
    writer.finish()

    used = [(buffer, node) for buffer, node in plain.items() if buffer in writer.alive]
    constants = [Weight(node, Value.whole(buffer, node.meta["val"].shape).layout, "plain") for buffer, node in used]
    packs = [Weight(plain[pack.matrix.buffer], pack.matrix.layout, pack.form) for pack in operations.packed]
    pointers = [_pointer(buffer, f"weights[{n}]") for n, (buffer, _) in enumerate(used)]
    pointers += [f"const void* __restrict p{n} = weights[{len(used) + n}];" for n in range(len(packs))]
    pointers += [_pointer(values[given].buffer, "given")]
    for n, node in enumerate(state):
        place, kind = f"state[{n}]", c_type(values[node].dtype)
        pointers.append(_pointer(values[node].buffer, slides[node].pointer(kind, place) if node in slides else place))
    pointers += [_pointer(value.buffer, place) for place, value in places.items()]
    size = 0
    placed = {value.buffer for value in places.values()}
    for buffer in writer.scratch:
        if buffer not in placed:
            pointers.append(_pointer(buffer, f"(scratch + {size})"))
            size += -(-buffer.size * buffer.dtype.itemsize // ALIGNMENT) * ALIGNMENT
    body = "\n".join(["const NoTinyNumbers while_stepping;", *pointers, writer.text()])
    return Lowered(
        source=f"{SIGNATURE} {{\n{body}\n}}\n",
        scratch=size,
        weights=constants + packs,
        constants=[node for node in graph.nodes if node in constant],
        parameters=inputs[:parameters],
        state=[node.meta["val"] for node in state],
        slides={number: slides[node] for number, node in enumerate(state) if node in slides},
        given=given.meta["val"],
        output=results[0].meta["val"],
    )


SIGNATURE = (
    'extern "C" void step(const void* const* weights, char* scratch, const void* given, '
    "const void* const* state, void* const* next, void* output)"
)


def _constants(graph: fx.Graph, changing: set[fx.Node]) -> set[fx.Node]:
    """Nodes that no token and no state can change."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            raise CannotCompile("a tensor that is neither parameter nor buffer of the model is not known")
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CannotCompile(f"random numbers ({node.target.__name__.split('.')[0]}) are drawn anew in each step")
        if node.op != "output" and node not in changing and all(part in found for part in node.all_input_nodes):
            found.add(node)
    return found


def _keeps_its_kind(state: list[fx.Node], following: list[Any]) -> None:
    """The memory of a state is written over by the next one, which must be as large."""
    if len(state) != len(following):
        raise CannotCompile(f"a step makes {len(following)} parts of state of {len(state)}")
    for number, (old, new) in enumerate(zip(state, following, strict=True)):
        before, after = (f"{tuple(one.meta['val'].shape)} {one.meta['val'].dtype}" for one in (old, new))
        if before != after:
            raise CannotCompile(f"part {number} of the state is {before}, and {after} after a step")


def _write_outputs(writer: LoopWriter, outputs: list[Any]) -> dict[str, Value]:
    """Where each result goes, if it is not there yet: its buffer is the place itself, or it is copied there."""
    places: dict[str, Value] = {}
    taken: set[Buffer] = set()
    for number, value in enumerate(outputs):
        if value is None:
            continue
        place = f"next[{number - 1}]" if number else "output"
        if value.buffer.kind != "scratch" or value.buffer in taken or not value.fills_its_buffer:
            places[place] = writer.temporary(value.shape, value.dtype)
            writer.each("{0}", value.dtype, [value], places[place])
        else:
            places[place] = value
        taken.add(places[place].buffer)
    writer.alive |= taken
    return places


def _pointer(buffer: Buffer, place: str) -> str:
    kind = c_type(buffer.dtype)
    return f"{kind}* __restrict {buffer.name} = ({kind}*){place};"
