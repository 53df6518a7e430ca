"""A unit program as C++: one function that walks its rows through all steps, with one loop over units for each phase.

It is given, for each tensor, the address of its first number and how far apart its rows and its steps lie; a slot is
what one row and step of a tensor holds for one purpose. Values are named by their nodes: v12 in a loop, m12 in memory;
p3 is where slot 3 holds the row and step at hand.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from elman.compiler.cpu.loop_schedule import Phases
from elman.compiler.cpu.step.aten import COMPARISONS, FORMULAS
from elman.compiler.cpu.step.buffers import c_type
from elman.compiler.interpreter import settled, together
from elman.compiler.ir import CONSTANT, ROW, UNITS, VECTOR, Program

HEAD = """
typedef {kind} T;
typedef void (*Multiply)(const T*, const T* const*, int64_t, int64_t, int64_t, int64_t, T*, int64_t, int64_t);
typedef void (*Pack)(
    const T*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, T*);
static int64_t whole(int64_t columns) {{ return (columns + 15) / 16 * 16 + 16; }}  // so that rows share no cache sets
"""
FUNCTION = """
extern "C" void {name}(int64_t from, int64_t to, const int64_t* given) {{
const NoTinyNumbers quick;
const int64_t time = given[0], size = given[1], down = given[2];
const int64_t* const lengths = (const int64_t*)given[3];
const Multiply multiply = (Multiply)given[4];
const Pack pack = (Pack)given[5];
const int64_t* const places = given + 6;
const int64_t rows = to - from, wide = whole(size);
"""
ROWS = "for (int64_t r = 0; r < rows; ++r) {"
UNITS_OF_ROW = "#pragma GCC ivdep\nfor (int64_t u = 0; u < size; ++u) {"
WRITTEN = {
    "spread": "{0}",
    "sign": "(({0} > 0) - ({0} < 0))",
    **{str(op).removeprefix("aten."): text for op, text in FORMULAS.items()},
    **{str(op).removeprefix("aten."): f"({{0}} {sign} {{1}})" for op, sign in COMPARISONS.items()},
}


class Place(NamedTuple):
    """Where a slot lies: in which tensor, and after how many times H numbers, and how many more, of a row and step."""

    tensor: int
    parts: int = 0
    more: int = 0


Slot = tuple[str, Any]
"""("load", (source, part)), ("initial", part), ("final", part), ("stored", place), ("sums", place) and, among weights,
("vector", (parameter, part))."""


class Emitted(NamedTuple):
    """A function of C++ that walks."""

    name: str
    text: str


def emit(
    name: str, program: Program, stored: tuple[int, ...], places: Mapping[Slot, Place], weights: tuple[str, ...]
) -> Emitted:
    """`stored` are the nodes that are handed out at each step. Weights come first among tensors."""
    return _Emitter(program, stored, places, weights).emitted(name)


def source(kind: torch.dtype, functions: Iterable[Emitted]) -> str:
    return HEAD.format(kind=c_type(kind)) + "".join(function.text for function in functions)


class _Emitter:
    def __init__(
        self, program: Program, stored: tuple[int, ...], places: Mapping[Slot, Place], weights: tuple[str, ...]
    ):
        self.program, self.places, self.weights = program, places, weights
        self.nodes, self.kinds = program.nodes, program.kinds()
        self.plan = Phases(program)
        self.groups = list(together(program).values())
        self.slots: list[Slot] = []
        self.sizes: list[str] = []
        self.results = ("stored", "=", stored), ("fresh", "=", program.carried), ("sums", "+=", program.summed)

    def emitted(self, name: str) -> Emitted:
        parts = range(len(self.program.carried))
        rooms = [self.room(name, f"{len(parts)} * rows * wide") for name in ("old", "fresh")]
        rooms += [self.room(f"y{n}", f"rows * whole({len(group)} * size)") for n, group in enumerate(self.groups)]
        for index, stays in self.plan.outliving.items():
            size = "whole(rows)" if self.kinds[index] == ROW else "rows * wide" if stays else "wide"
            rooms.append(self.room(f"m{index}", size))
        rooms += [self.room(f"m{index}", "wide") for index in self.plan.vectors]
        rooms += [self.room(f"w{n}", self.panels(group)) for n, group in enumerate(self.groups)]
        lines = [line for n, group in enumerate(self.groups) for line in self.packed(n, group)]
        lines += [f"for (int64_t u = 0; u < size; ++u) m{i}[u] = {self.formula(i)};" for i in self.plan.vectors]
        lines += [ROWS, *(self.copied("initial", part) for part in parts)]
        lines += [*(self.cleared(place) for place in range(len(self.program.summed))), "}"]
        lines += ["for (int64_t step = 0; step < time; ++step) {"]
        lines += ["const int64_t t = down ? time - 1 - step : step;"]
        stages = sorted({0, *self.plan.starts, self.plan.last + 1})
        for start, end in pairwise(stages):
            lines += [*self.products(start), *self.stage(range(start, end))]
        lines += ["std::swap(old, fresh);", "}", ROWS, *(self.copied("final", part) for part in parts), "}"]
        memory = f"T* const memory = (T*)std::aligned_alloc(64, ({' + '.join(self.sizes)}) * sizeof(T));"
        text = [FUNCTION.format(name=name), *self.given_slots(), memory, *rooms, *lines, "std::free(memory);", "}\n"]
        return Emitted(name, "\n".join(text))

    def given_slots(self) -> list[str]:
        """Where each slot lies, and how far apart its rows and steps do."""
        where = []
        for what, which in self.slots:
            place = Place(self.weights.index(which[0]), which[1]) if what == "vector" else None
            place = place or (found := self.places[what, which])._replace(tensor=len(self.weights) + found.tensor)
            where.append(place)
        firsts = [f"(T*)places[{3 * tensor}] + {parts} * size + {more}" for tensor, parts, more in where]
        apart = [f"places[{3 * place.tensor + axis}]" for place in where for axis in (1, 2)]
        return [f"T* const tensors[] = {{{', '.join(firsts)}}};", f"const int64_t strides[] = {{{', '.join(apart)}}};"]

    def slot(self, what: str, which: Any) -> int:
        if (what, which) not in self.slots:
            self.slots.append((what, which))
        return self.slots.index((what, which))

    def room(self, name: str, size: str) -> str:
        before = " + ".join(["memory", *self.sizes])
        self.sizes.append(size)
        return f"T* {name} = {before};"

    def copied(self, what: str, part: int) -> str:
        """A part of the state, from or to the outside."""
        n = self.slot(what, part)
        given, own = f"tensors[{n}] + (from + r) * strides[{2 * n}]", f"old + ({part} * rows + r) * wide"
        return f"std::memcpy({', '.join((own, given) if what == 'initial' else (given, own))}, size * sizeof(T));"

    def cleared(self, place: int) -> str:
        n = self.slot("sums", place)
        return f"std::memset(tensors[{n}] + (from + r) * strides[{2 * n}], 0, size * sizeof(T));"

    def panels(self, group: list[int]) -> str:
        """How many numbers the matrix takes by which all arguments reach all products of a group."""
        return f"({len(group)} * size + 15) / 16 * 16 * {len(self.nodes[group[0]].args)} * size"

    def packed(self, n: int, group: list[int]) -> Iterator[str]:
        depth = f"{len(self.nodes[group[0]].args)} * size"
        for number, index in enumerate(group):
            for place, matrix in enumerate(self.nodes[index].detail):
                weight = 3 * self.weights.index(matrix.parameter)
                first = f"(T*)places[{weight}] + ({matrix.row} * places[{weight + 1}] + {matrix.column}) * size"
                apart = f"1, places[{weight + 1}]" if matrix.flipped else f"places[{weight + 1}], 1"
                columns = f"{number} * size, {len(group)} * size"
                yield f"pack({first}, {apart}, size, size, {columns}, {place} * size, {depth}, w{n});"

    def products(self, phase: int) -> list[str]:
        lines = []
        for n, group in enumerate(self.groups):
            if self.plan.place[group[0]] == phase:
                args = self.nodes[group[0]].args
                heard = ", ".join(self.heard(arg) for arg in args)
                columns = f"{len(group)} * size"
                given = f"w{n}, x, {len(args)}, size, wide, rows, y{n}"
                lines += [
                    f"{{ const T* const x[] = {{{heard}}};",
                    f"multiply({given}, whole({columns}), {columns}); }}",
                ]
        return lines

    def heard(self, index: int) -> str:
        """Where a product finds the value of all rows."""
        node = self.nodes[index]
        return f"old + {node.detail[0]} * rows * wide" if node.op == "state" else f"m{index}"

    def stage(self, phases: range) -> list[str]:
        """Phases without products between them, for one row after another."""
        self.addresses: dict[str, str] = {"row": "const int64_t row = from + r;"}
        lines = [line for phase in phases for line in self.phase(phase)]
        return [ROWS, *self.addresses.values(), *lines, "}"] if lines else []

    def phase(self, phase: int) -> list[str]:
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        for index in self.plan.made:
            if self.plan.place[index] != phase:
                continue
            wide = self.kinds[index] == UNITS
            if self.nodes[index].op == "total":
                before.append(f"T v{index} = 0;")
                inside.append(f"v{index} += {self.value(self.nodes[index].args[0], phase)};")
            else:
                (inside if wide else before).append(f"const T v{index} = {self.formula(index)};")
            if index in self.plan.outliving:
                (inside if wide else after).append(f"{self.memory(index)} = v{index};")
        for what, sign, indices in self.results:
            for n, index in enumerate(indices):
                if self.plan.written(index) == phase:
                    place = self.state(what, n) if what == "fresh" else self.given(what, n)
                    where, unit = (after, 0) if self.kinds[index] == ROW else (inside, "u")
                    where.append(f"{place}[{unit}] {sign} {self.value(index, phase)};")
        loop = [UNITS_OF_ROW, *inside, "}"] if inside else []
        return [*before, *loop, *after]

    def formula(self, index: int) -> str:
        node = self.nodes[index]
        return WRITTEN[node.op].format(*(self.value(arg, self.plan.place[index]) for arg in node.args))

    def value(self, index: int, phase: int) -> str:
        """How a node is read in a phase."""
        node, kind = self.nodes[index], self.kinds[index]
        if kind == CONSTANT:
            return _literal(settled(self.program, index))
        if node.op == "load":
            return f"{self.given('load', node.detail[:2])}[{'u' if kind == UNITS else 0}]"
        if node.op in ("state", "going", "vector", "product"):
            return self.leaf(index)
        if kind == VECTOR:
            return f"m{index}[u]"
        made = self.plan.place[index]
        near = made == phase if kind == UNITS else self.plan.stage(made) == self.plan.stage(phase)
        return f"v{index}" if near else self.memory(index)

    def leaf(self, index: int) -> str:
        """What lies in memory in any case."""
        node = self.nodes[index]
        if node.op == "state":
            return f"{self.state('old', node.detail[0])}[u]"
        if node.op == "going":
            return "(t < lengths[row])"
        if node.op == "vector":
            return f"tensors[{self.slot('vector', node.detail)}][u]"
        n = next(n for n, group in enumerate(self.groups) if index in group)
        start = f"y{n} + r * whole({len(self.groups[n])} * size) + {self.groups[n].index(index)} * size"
        return f"{self.address(f'y{index}_', start)}[u]"

    def memory(self, index: int) -> str:
        if self.kinds[index] == ROW:
            return f"m{index}[r]"
        start = f"m{index} + r * wide" if self.plan.outliving[index] else f"m{index}"
        return f"{self.address(f'm{index}_', start)}[u]"

    def given(self, what: str, which: Any) -> str:
        """Where a slot holds this row and step."""
        n = self.slot(what, which)
        return self.address(f"p{n}", f"tensors[{n}] + row * strides[{2 * n}] + t * strides[{2 * n + 1}]")

    def state(self, name: str, part: int) -> str:
        return self.address(f"{name}{part}", f"{name} + ({part} * rows + r) * wide")

    def address(self, name: str, start: str) -> str:
        self.addresses[name] = f"T* __restrict {name} = {start};"
        return name


def _literal(value: float) -> str:
    if math.isnan(value):
        return "T(NAN)"
    return f"T({value!r})" if abs(value) < 1e300 else f"T({'-' if value < 0 else ''}INFINITY)"
