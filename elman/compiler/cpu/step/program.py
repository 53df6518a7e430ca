"""Writes the C++ of a step of many rows: matrix products run once for all of them, the code between for each.

    for each row: part0        its gather, loops, …; ends by saying what the row's next product reads and writes
    product for all rows       reads the weights once
    for each row: part1 …      up to the next state
    for each row that wants logits: the rest

Rows share nothing, and each runs the same instructions whatever its company.
"""

import re

from elman.compiler.cpu.step.loops import LoopFuser, Product

STEP = 'extern "C" void step(const void* const* weights, Row* const* rows, int64_t count, int64_t outputs)'
PART = "static __attribute__((noinline)) void {name}(const void* const* weights, Row& row)"
EACH = "for (int64_t n = 0; n < count; ++n)"
SWAP = f"{EACH} std::swap(rows[n]->state, rows[n]->next);"
NAMES = re.compile(r"\b[a-z]\d+\b")
# The step of one row, by models that write their own (`machine_code`).
SIGNATURE = (
    "static void step_row(const void* const* weights, char* scratch, const void* given, "
    "const void* const* state, void* const* next, void* output)"
)


def of_one_row(code: str) -> str:
    """The program of a model whose code has a function of this SIGNATURE."""
    call = (
        f"{EACH} step_row(weights, rows[n]->scratch, rows[n]->given, rows[n]->state, rows[n]->next, rows[n]->output);"
    )
    return f"{code}\n{STEP} {{\n{call}\n{SWAP}\n}}\n"


def of_rows(fuser: LoopFuser, needed: int, opening: list[str], pointers: dict[str, str]) -> str:
    """The program of these parts, of which the state needs the first ones: `opening` comes before all; `pointers` are
    declarations by name."""
    functions: list[str] = []
    lines, main = list(opening), ["const FlushDenormals flush;"]

    def end_part() -> None:
        body, name = "\n".join(lines), f"part{len(functions)}"
        if body:
            used = set(NAMES.findall(body))
            declared = [declaration for one, declaration in pointers.items() if one in used]
            functions.append("\n".join([PART.format(name=name) + " {", *declared, body, "}"]))
            main.append(f"{EACH} {name}(weights, *rows[n]);")
            lines.clear()

    end_part()  # the pointers of the next part are read when it begins
    main.append("const int64_t all = count;")
    for number, part in enumerate(fuser.parts):
        if number == needed:
            end_part()
            main.append("count = outputs;")
        if isinstance(part, Product):
            lines.append(f"row.x = {part.x}, row.bias = {part.bias}, row.y = {part.y};")
            end_part()
            main.append(f"{part.kernel}({part.matrix}, rows, count, {part.inner}, {part.columns});")
        elif text := fuser.text(part):
            lines.append(text)
    end_part()
    used = set(NAMES.findall("\n".join(main)))
    main[1:1] = [declaration for name, declaration in pointers.items() if name in used]
    return "\n".join([*functions, STEP + " {", *main, "count = all;", SWAP, "}\n"])
