"""Waiting for numbers by looking at them: where nothing was sent yet, memory holds a pattern that no result has.

A program asks for all it needs, 16 bytes at a time, and asks again while anything is missing: one way through the cache
instead of three (a counter raised after the store, seen, and then the numbers). Lanes ask for what their part of a
matrix product takes, so that nothing has to change hands: which of the inner dimension's numbers a lane takes first
does not matter if weights lie in the same order.
"""

from typing import NamedTuple

ABSENT = -1  # all bits set: a NaN that arithmetic never makes, its own having no sign
WIDE = 4  # words that one look takes
AT_ONCE = 32  # looks of a thread before the first is used: each takes four registers


class Tile(NamedTuple):
    """A piece of what others sent as lanes hold it: (rows / 16, blocks, 2, warps, 8 rows, 4 lanes), 16 bytes each.

    The order is that in which Triton gives numbers to threads, and so are the registers of a product's operand.
    """

    rows: int
    length: int
    split: int
    itemsize: int

    @property
    def each(self) -> int:
        """Numbers in 16 bytes."""
        return 16 // self.itemsize

    @property
    def blocks(self) -> int:
        return self.length // self.split // (4 * self.each)

    @property
    def looks(self) -> int:
        """Of each thread."""
        return self.rows // 8 * self.blocks

    def inner(self) -> str:
        """Which numbers of the inner dimension a lane asks for; the first of each 16 bytes."""
        of_block, of_warp = _along(1, self.blocks), _along(3, self.split)
        return f"{of_block} * {4 * self.each} + {of_warp} * {self.length // self.split} + {_along(5, 4)} * {self.each}"

    def outer(self) -> str:
        halves = f"{_along(0, self.rows // 16)} * 16 + {_along(2, 2)} * 8"
        return f"group * {self.rows} + {halves} + {_along(4, 8)}"

    def ordered(self, weights: str, columns: int) -> str:
        """Weights (warps, inner dimension, columns) in the order in which lanes hold what they are multiplied by."""
        parted = f"tl.reshape({weights}, ({self.split}, {self.blocks}, 4, 2, {self.each // 2}, {columns}))"
        moved = f"tl.permute({parted}, (0, 1, 3, 2, 4, 5))"
        return f"tl.reshape({moved}, ({self.split}, {self.length // self.split}, {columns}))"

    def whole(self) -> str:
        """A function that makes an operand of a product from its words."""
        lines = [
            "",
            "@triton.jit",
            "def whole(a, b, c, d, KIND: tl.constexpr):",
            "    words = tl.join(tl.join(a, c), tl.join(b, d))",
        ]
        if self.itemsize == 2:
            half = ".to(tl.int16).to(KIND, bitcast=True)"
            lines.append(f"    found = tl.join((words & 65535){half}, (words >> 16){half})")
            order = "3, 0, 2, 4, 1, 6, 5, 7, 8"
        else:
            lines.append("    found = rounded(words.to(tl.float32, bitcast=True))")
            order = "3, 0, 2, 4, 1, 6, 5, 7"
        shape = f"{self.split}, {self.rows}, {self.length // self.split}"
        lines.append(f"    return tl.reshape(tl.permute(found, ({order})), ({shape}))")
        return "\n".join(lines) + "\n"


def _along(axis: int, count: int) -> str:
    """0, 1, … along one of a tile's six axes."""
    return f"tl.arange(0, {count})[{', '.join(':' if one == axis else 'None' for one in range(6))}]"


def function(name: str, tensors: int, looks: int, lines: list[str], interpreted: bool) -> str:
    """A function of pointers, the alarm and patience: all the words there.

    `looks` of each thread at each tensor of pointers; `lines` of assembly, from `awaited` or `taken`.
    """
    pointers = [f"p{number}" for number in range(tensors)]
    head = f"\n@triton.jit\ndef {name}({', '.join(pointers)}, alarm, limit):\n"
    if interpreted:  # programs run one after another, and none can wait
        places = "".join(f"    {p} = {p}.to(tl.pointer_type(tl.int32))\n" for p in pointers)
        loaded = ", ".join(f"tl.load({p} + {word})" for p in pointers for word in range(WIDE))
        return f"{head}{places}    return {loaded}\n"
    text = "\\n".join(lines)
    outputs = tensors * WIDE
    kinds = ["=&r"] * (outputs * looks) + ["l"] * ((tensors + 1) * looks) + ["r"] * looks
    given = ", ".join([*(f"{p}.to(tl.int64)" for p in pointers), "alarm.to(tl.int64)", "limit"])
    made = f"({', '.join(['tl.int32'] * outputs)})"
    call = f'tl.inline_asm_elementwise("{text}", "{",".join(kinds)}", [{given}], dtype={made}, is_pure=False'
    names = ", ".join(f"w{number}" for number in range(outputs))
    lines = [f"w{number} = tl.zeros(p0.shape, tl.int32)" for number in range(outputs)]
    # a loop of one round: the compiler repeats assembly in every layout that somebody wants, but never a loop
    lines += ["rounds = 0", "while rounds < 1:", f"    {names} = {call}, pack={looks})", "    rounds += 1"]
    return head + "\n".join(f"    {line}" for line in [*lines, f"return {names}"]) + "\n"


def taken(tensors: int, looks: int) -> list[str]:
    """Assembly: all words, which are known to be there."""
    return ["{", *(text for text, _ in _asked(tensors, looks)), "}"]


def awaited(tensors: int, looks: int, halves: bool, scouting: bool) -> list[str]:
    """Assembly: all words, once nothing is missing.

    `halves`: words hold two numbers, each of which may be missing; `scouting`: a thread waits for its first number,
    then asks for all.
    """
    outputs, pointers = tensors * WIDE * looks, tensors * looks

    def missing(taken: list[str]) -> list[str]:
        found = ["mov.u32 most, 0;"]
        for word in taken:
            found.append(f"max.u32 most, most, {word};")
            found += [f"shl.b32 low, {word}, 16;", "max.u32 most, most, low;"] if halves else []
        least = "0xffff0000" if halves else "0xffffffff"
        return [*found, f"setp.ge.u32 absent, most, {least};", "vote.sync.any.pred absent, absent, 0xffffffff;"]

    alarm, limit = f"${outputs + pointers}", f"${outputs + pointers + looks}"
    asked = _asked(tensors, looks)
    lines = ["{", ".reg .pred absent, calm;", ".reg .b32 most, low, spins, told;", "mov.u32 spins, 0;", "again:"]
    if scouting:
        lines += [asked[0][0], *missing(asked[0][1]), "@absent bra count;"]
    lines += [text for text, _ in asked]
    lines += [*missing([word for _, taken in asked for word in taken]), "@!absent bra done;", "count:"]
    lines += ["add.u32 spins, spins, 1;", f"setp.ge.u32 calm, spins, {limit};", "@calm bra tired;"]
    # whether others gave up is asked now and then, since the answer has to be waited for
    lines += ["and.b32 low, spins, 255;", "setp.ne.u32 calm, low, 0;", "@calm bra again;"]
    lines += [f"ld.relaxed.gpu.global.b32 told, [{alarm}];", "setp.eq.u32 calm, told, 0;", "@calm bra again;"]
    return [
        *lines,
        "bra done;",
        "tired:",
        "mov.u32 told, 1;",
        f"st.relaxed.gpu.global.b32 [{alarm}], told;",
        "done:",
        "}",
    ]


def _asked(tensors: int, looks: int) -> list[tuple[str, list[str]]]:
    """Each look, and the words that it takes."""
    found = []
    for tensor in range(tensors):
        for one in range(looks):
            words = [f"${(tensor * WIDE + word) * looks + one}" for word in range(WIDE)]
            pointer = f"${tensors * WIDE * looks + tensor * looks + one}"
            found.append((f"ld.relaxed.gpu.global.v4.b32 {{{', '.join(words)}}}, [{pointer}];", words))
    return found
