"""Emits a StepIR as C++: one function that runs its rows through all steps.

    v12  the value of node 12, in a register; m12 in memory         w0, y0  packed panels and result of GEMM 0
    p3   the address of slot 3 at this row and step                 state, next  (parts, rows, pitch)

    pack all weights into panels w
    for each step t:
      for each region (LoopSchedule):
        gemm(w, state or m, y)               the matmuls that this region reads, all rows at once; none of zeros
        for each row r:                      the epilogue, while the row is in the nearest cache
          for each loop of the region:
            for each unit u:  v = f(...)     one vectorised loop; reductions over units end it
      swap(state, next)

A function gets, for each tensor, a descriptor: the address of its first element, and the strides of its rows and steps,
in elements. A slot is what one row and step of a tensor holds for one purpose (`Slot`). With `chosen` (rows, steps) the
drive is a table, and these are the numbers of its rows.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from elman.compiler.cpu.build import COMPARISONS, EXPRESSIONS, c_type
from elman.compiler.cpu.loop_schedule import LoopSchedule
from elman.compiler.interpreter import fold_constant, group_matmuls
from elman.compiler.ir import CONSTANT, ROW, UNITS, VECTOR, StepIR

HEAD = """
typedef {dtype} T;
typedef void (*Gemm)(const T*, const T* const*, int64_t, int64_t, int64_t, int64_t, T*, int64_t, int64_t);
typedef void (*Pack)(
    const T*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, T*);
static int64_t padded(int64_t columns) {{ return (columns + 15) / 16 * 16 + 16; }}  // so that rows share no cache sets
static bool all_zero(const T* x, int64_t rows, int64_t size, int64_t pitch) {{
    int64_t others = 0;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t u = 0; u < size; ++u) others += x[r * pitch + u] != 0;
    return !others;
}}
"""
FUNCTION = """
extern "C" void {name}(int64_t from, int64_t to, const int64_t* args) {{
const FlushDenormals flush;
const int64_t time = args[0], size = args[1], reverse = args[2];
const int64_t* const lengths = (const int64_t*)args[3];
const Gemm gemm = (Gemm)args[4];
const Pack pack = (Pack)args[5];
const int64_t* const chosen = (const int64_t*)args[6];
const int64_t* const descriptors = args + 7;
const int64_t rows = to - from, pitch = padded(size);
"""
ROW_LOOP = "for (int64_t r = 0; r < rows; ++r) {"
UNIT_LOOP = "#pragma GCC ivdep\nfor (int64_t u = 0; u < size; ++u) {"
OPERATIONS = {
    "broadcast": "{0}",
    "sign": "(({0} > 0) - ({0} < 0))",
    **EXPRESSIONS,
    **{op: f"({{0}} {sign} {{1}})" for op, sign in COMPARISONS.items()},
}


class TensorOffset(NamedTuple):
    """Where a slot lies in its tensor: `vectors` · H + `scalars` elements after the beginning of a row and step."""

    tensor: int
    vectors: int = 0
    scalars: int = 0


Slot = tuple[str, Any]
"""("load", (source, part)), ("initial", part), ("final", part), ("result", n), ("accumulated", n), and in weights
("vector", (parameter, part))."""
Offsets = Mapping[Slot, TensorOffset]


class CppFunction(NamedTuple):
    name: str
    text: str


def source(dtype: torch.dtype, functions: Iterable[CppFunction]) -> str:
    return HEAD.format(dtype=c_type(dtype)) + "".join(function.text for function in functions)


class Emitter:
    """`results`: nodes stored at each step. Weights come first among the tensors; `offsets` count the others."""

    def __init__(self, program: StepIR, results: tuple[int, ...], offsets: Offsets, weights: tuple[str, ...]):
        self.program, self.offsets, self.weights = program, offsets, weights
        self.nodes, self.shapes = program.nodes, program.shapes()
        self.schedule = LoopSchedule(program)
        self.gemms = list(group_matmuls(program).values())
        self.slots: list[Slot] = []
        self.sizes: list[str] = []
        self.stores = (
            ("result", "=", results),
            ("next", "=", program.next_state),
            ("accumulated", "+=", program.accumulated),
        )

    def function(self, name: str) -> CppFunction:
        schedule, parts = self.schedule, range(len(self.program.next_state))
        buffers = [self.buffer(name, f"{len(parts)} * rows * pitch") for name in ("state", "next")]
        buffers += [self.buffer(f"y{n}", f"rows * padded({len(gemm)} * size)") for n, gemm in enumerate(self.gemms)]
        for index, all_rows in schedule.spilled.items():
            size = "padded(rows)" if self.shapes[index] == ROW else "rows * pitch" if all_rows else "pitch"
            buffers.append(self.buffer(f"m{index}", size))
        buffers += [self.buffer(f"m{index}", "pitch") for index in schedule.vectors]
        buffers += [self.buffer(f"w{n}", self.panel_size(gemm)) for n, gemm in enumerate(self.gemms)]
        lines = [line for n, gemm in enumerate(self.gemms) for line in self.pack(n, gemm)]
        lines += [f"for (int64_t u = 0; u < size; ++u) m{i}[u] = {self.expression(i)};" for i in schedule.vectors]
        lines += [ROW_LOOP, *(self.copy_state("initial", part) for part in parts)]
        for n in (self.slot("accumulated", n) for n in range(len(self.program.accumulated))):
            lines.append(f"std::memset(tensors[{n}] + (from + r) * strides[{2 * n}], 0, size * sizeof(T));")
        lines.append("}")
        lines += [f"const bool fresh = all_zero(state, {len(parts)} * rows, size, pitch);"]
        lines += ["for (int64_t step = 0; step < time; ++step) {"]
        lines += ["const int64_t t = reverse ? time - 1 - step : step;"]
        for start, end in pairwise(sorted({0, *schedule.starts, schedule.last + 1})):
            lines += [*self.gemm_calls(start), *self.region(range(start, end))]
        lines += ["std::swap(state, next);", "}", ROW_LOOP, *(self.copy_state("final", part) for part in parts), "}"]
        memory = f"T* const memory = (T*)std::aligned_alloc(64, ({' + '.join(self.sizes)}) * sizeof(T));"
        text = [FUNCTION.format(name=name), *self.slot_tables(), memory, *buffers, *lines, "std::free(memory);", "}\n"]
        return CppFunction(name, "\n".join(text))

    def slot_tables(self) -> list[str]:
        """Tables of all slots: the address of each, and the strides of its rows and steps."""
        firsts, strides = [], []
        for what, which in self.slots:
            if what == "vector":
                tensor, vectors, scalars = self.weights.index(which[0]), which[1], 0
            else:
                tensor, vectors, scalars = self.offsets[what, which]
                tensor += len(self.weights)
            firsts.append(f"(T*)descriptors[{3 * tensor}] + {vectors} * size + {scalars}")
            strides += [f"descriptors[{3 * tensor + axis}]" for axis in (1, 2)]
        tensors = f"T* const tensors[] = {{{', '.join(firsts)}}};"
        return [tensors, f"const int64_t strides[] = {{{', '.join(strides)}}};"]

    def slot(self, what: str, which: Any) -> int:
        if (what, which) not in self.slots:
            self.slots.append((what, which))
        return self.slots.index((what, which))

    def buffer(self, name: str, size: str) -> str:
        """A region of the function's scratch memory."""
        start = " + ".join(["memory", *self.sizes])
        self.sizes.append(size)
        return f"T* {name} = {start};"

    def copy_state(self, what: str, part: int) -> str:
        """Copies a part of the state in ("initial") or out ("final")."""
        n = self.slot(what, part)
        outside, own = f"tensors[{n}] + (from + r) * strides[{2 * n}]", f"state + ({part} * rows + r) * pitch"
        return f"std::memcpy({', '.join((own, outside) if what == 'initial' else (outside, own))}, size * sizeof(T));"

    def panel_size(self, gemm: list[int]) -> str:
        """Elements of the packed matrix that maps all arguments of a GEMM to all of its results."""
        return f"({len(gemm)} * size + 15) / 16 * 16 * {len(self.nodes[gemm[0]].args)} * size"

    def pack(self, n: int, gemm: list[int]) -> Iterator[str]:
        depth = f"{len(self.nodes[gemm[0]].args)} * size"
        for column, index in enumerate(gemm):
            for row, block in enumerate(self.nodes[index].detail):
                weight = 3 * self.weights.index(block.parameter)
                first = f"(T*)descriptors[{weight}] + ({block.row} * descriptors[{weight + 1}] + {block.column}) * size"
                strides = f"1, descriptors[{weight + 1}]" if block.flipped else f"descriptors[{weight + 1}], 1"
                columns = f"{column} * size, {len(gemm)} * size"
                yield f"pack({first}, {strides}, size, size, {columns}, {row} * size, {depth}, w{n});"

    def gemm_calls(self, loop: int) -> Iterator[str]:
        """Calls of the GEMMs whose results are first read in this loop."""
        for n, gemm in enumerate(self.gemms):
            if self.schedule.loop[gemm[0]] == loop:
                args, columns = self.nodes[gemm[0]].args, f"{len(gemm)} * size"
                states = {arg: self.nodes[arg].detail[0] for arg in args if self.nodes[arg].op == "state"}
                operands = (f"state + {states[arg]} * rows * pitch" if arg in states else f"m{arg}" for arg in args)
                yield f"{{ const T* const x[] = {{{', '.join(operands)}}};"
                call = f"gemm(w{n}, x, {len(args)}, size, pitch, rows, y{n}, padded({columns}), {columns});"
                if len(states) == len(args):  # products of the zeros that a sequence usually begins with
                    zero = f"std::memset(y{n}, 0, rows * padded({columns}) * sizeof(T));"
                    call = f"if (fresh && step == 0) {zero} else {call}"
                yield f"{call} }}"

    def region(self, loops: range) -> list[str]:
        """Loops without a GEMM between them, for one row after another."""
        self.addresses: dict[str, str] = {"row": "const int64_t row = from + r;"}
        lines = [line for loop in loops for line in self.unit_loop(loop)]
        return [ROW_LOOP, *self.addresses.values(), *lines, "}"] if lines else []

    def unit_loop(self, loop: int) -> list[str]:
        """One loop over units, with the ROW values computed before and stored after it."""
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        for index in self.schedule.computed:
            if self.schedule.loop[index] != loop:
                continue
            wide = self.shapes[index] == UNITS
            if self.nodes[index].op == "sum":
                before.append(f"T v{index} = 0;")
                inside.append(f"v{index} += {self.value(self.nodes[index].args[0], loop)};")
            else:
                (inside if wide else before).append(f"const T v{index} = {self.expression(index)};")
            if index in self.schedule.spilled:
                (inside if wide else after).append(f"{self.memory(index)} = v{index};")
        for what, sign, indices in self.stores:
            for n, index in enumerate(indices):
                if self.schedule.store_loop(index) == loop:
                    address = self.state_address(what, n) if what == "next" else self.slot_address(what, n)
                    lines, unit = (after, 0) if self.shapes[index] == ROW else (inside, "u")
                    lines.append(f"{address}[{unit}] {sign} {self.value(index, loop)};")
        return [*before, *([UNIT_LOOP, *inside, "}"] if inside else []), *after]

    def expression(self, index: int) -> str:
        node = self.nodes[index]
        return OPERATIONS[node.op].format(*(self.value(arg, self.schedule.loop[index]) for arg in node.args))

    def value(self, index: int, loop: int) -> str:
        """How a loop reads a node: a literal, a register, or memory."""
        node, shape = self.nodes[index], self.shapes[index]
        if shape == CONSTANT:
            return _literal(fold_constant(self.program, index))
        if node.op == "load":
            return f"{self.slot_address('load', node.detail[:2])}[{'u' if shape == UNITS else 0}]"
        if node.op in ("state", "active", "vector", "matmul"):
            return self.leaf(index)
        if shape == VECTOR:
            return f"m{index}[u]"
        own, region = self.schedule.loop[index], self.schedule.region
        in_register = own == loop if shape == UNITS else region(own) == region(loop)
        return f"v{index}" if in_register else self.memory(index)

    def leaf(self, index: int) -> str:
        node = self.nodes[index]
        if node.op == "state":
            return f"{self.state_address('state', node.detail[0])}[u]"
        if node.op == "active":
            return "(t < lengths[row])"
        if node.op == "vector":
            return f"tensors[{self.slot('vector', node.detail)}][u]"
        n, gemm = next((n, gemm) for n, gemm in enumerate(self.gemms) if index in gemm)
        start = f"y{n} + r * padded({len(gemm)} * size) + {gemm.index(index)} * size"
        return f"{self.address(f'y{index}_', start)}[u]"

    def memory(self, index: int) -> str:
        if self.shapes[index] == ROW:
            return f"m{index}[r]"
        start = f"m{index} + r * pitch" if self.schedule.spilled[index] else f"m{index}"
        return f"{self.address(f'm{index}_', start)}[u]"

    def slot_address(self, what: str, which: Any) -> str:
        n = self.slot(what, which)
        place = f"row * strides[{2 * n}] + t * strides[{2 * n + 1}]"
        if what == "load" and which[0] == "drive":
            place = f"(chosen ? chosen[row * time + t] * strides[{2 * n}] : {place})"
        return self.address(f"p{n}", f"tensors[{n}] + {place}")

    def state_address(self, name: str, part: int) -> str:
        return self.address(f"{name}{part}", f"{name} + ({part} * rows + r) * pitch")

    def address(self, name: str, start: str) -> str:
        """Declares a pointer for the current row, once, at the beginning of the region."""
        self.addresses[name] = f"T* __restrict {name} = {start};"
        return name


def _literal(value: float) -> str:
    if math.isnan(value):
        return "T(NAN)"
    return f"T({value!r})" if abs(value) < 1e300 else f"T({'-' if value < 0 else ''}INFINITY)"
