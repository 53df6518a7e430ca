"""Writes the C++ of a step of many rows: matrix products run once for all of them, the code between for each.

    for each row: part0        its gather, loops, …; ends by saying what the row's next product reads and writes
    product for all rows       reads the weights once
    for each row: part1 …      up to the next state
    for each row that wants logits: the rest

Rows share nothing, and each runs the same instructions whatever its company.
"""

import re
from dataclasses import dataclass, field

from elman.compiler.cpu.build import c_type
from elman.compiler.cpu.step.buffers import Buffer
from elman.compiler.cpu.step.loops import LoopFuser, Product

ALIGNMENT = 64  # bytes: a cache line, an AVX-512 register
STEP = "ENTRY void step(const void* const* weights, Row* const* rows, int64_t count, [[maybe_unused]] int64_t outputs)"
PART = "static __attribute__((noinline)) void part{number}([[maybe_unused]] const void* const* weights, Row& row)"
EACH = "for (int64_t n = 0; n < count; ++n)"
SWAP = f"{EACH} std::swap(rows[n]->state, rows[n]->next);"
NAMES = re.compile(r"\b[a-z]\d+\b")
# The step of one row, by models that write their own (`machine_code`).
SIGNATURE = (
    "static void step_row(const void* const* weights, [[maybe_unused]] char* scratch, const void* given, "
    "const void* const* state, void* const* next, void* output)"
)


@dataclass
class Part:
    """What runs for each row, and the matrix product for all rows after it."""

    lines: list[str] = field(default_factory=list)
    product: Product | None = None

    @property
    def names(self) -> set[str]:
        return set(NAMES.findall("\n".join(self.lines)))


def of_one_row(code: str) -> str:
    """The program of a model whose code has a function of this SIGNATURE."""
    call = "step_row(weights, row.scratch, row.given, row.state, row.next, row.output);"
    part = f"{PART.format(number=0)} {{ {call} }}"
    return f"{code}\n{part}\n{STEP} {{\neach_row(part0, weights, rows, count);\n{SWAP}\n}}\n"


def of_rows(fuser: LoopFuser, needed: int, opening: list[str], pointers: dict[str, str]) -> tuple[str, int]:
    """The program of these parts, of which the state needs the first ones, and the bytes of its scratch memory.

    `opening` comes before all; `pointers` are declarations by name, those of buffers in scratch memory excepted.
    """
    before, after = _parts(fuser, 0, needed), _parts(fuser, needed, len(fuser.parts))
    parts = [Part(opening), *before, *after]  # a part reads pointers when it begins: windows have moved by then
    buffers = {buffer.name: buffer for buffer in fuser.scratch if buffer.name not in pointers}
    places, scratch = _places(parts, buffers, padded(8 * len(opening)))
    pointers = pointers | {name: pointer(buffers[name], f"(row.scratch + {places[name]})") for name in places}
    functions, main = [], ["const FlushDenormals flush;", "const int64_t all = count;"]
    for number, part in enumerate(parts):
        if number == 1 + len(before):
            main.append("count = outputs;")
        if part.lines:
            declared = [declaration for name, declaration in pointers.items() if name in part.names]
            functions.append("\n".join([PART.format(number=number) + " {", *declared, *part.lines, "}"]))
            main.append(f"each_row(part{number}, weights, rows, count);")
        if part.product:
            kernel, matrix, *_, inner, columns = part.product
            main += [pointers[matrix], f"{kernel}({matrix}, rows, count, {inner}, {columns});"]
    return "\n".join([*functions, STEP + " {", *main, "count = all;", SWAP, "}\n"]), scratch


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def pointer(buffer: Buffer, memory: str) -> str:
    """C: the declaration of a buffer."""
    c_dtype = c_type(buffer.dtype)
    return f"{c_dtype}* __restrict {buffer.name} = ({c_dtype}*){memory};"


def _parts(fuser: LoopFuser, start: int, end: int) -> list[Part]:
    parts = [Part()]
    for entry in fuser.parts[start:end]:
        if isinstance(entry, Product):
            parts[-1].lines.append(f"row.x = {entry.x}, row.bias = {entry.bias}, row.y = {entry.y};")
            parts[-1].product = entry
            parts.append(Part())
        elif text := fuser.text(entry):
            parts[-1].lines.append(text)
    return parts


def _places(parts: list[Part], buffers: dict[str, Buffer], start: int) -> tuple[dict[str, int], int]:
    """The offset of each buffer in scratch memory, and its size. Buffers share memory if no part uses both of them, or
    runs between: the less memory a row has, the more rows the cache holds."""
    used: dict[str, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        for name in part.names & buffers.keys():
            used[name] = used.get(name, (number, 0))[0], number
    places: dict[str, int] = {}
    end = start
    for name, (first, last) in sorted(used.items(), key=lambda item: item[1]):
        size, place = padded(buffers[name].size * buffers[name].dtype.itemsize), start
        others = [(places[other], other) for other in places if used[other][1] >= first and used[other][0] <= last]
        for taken, other in sorted(others):
            if place + size > taken:
                place = max(place, taken + padded(buffers[other].size * buffers[other].dtype.itemsize))
        places[name], end = place, max(end, place + size)
    return places, end
