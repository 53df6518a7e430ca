"""Waiting for numbers by looking at them: where nothing was sent yet, memory holds a pattern that no result has.

A program asks for all it needs, 16 bytes at a time, and asks again while anything is missing: one way through the cache
instead of three (a counter raised after the store, seen, and then the numbers). Lanes ask for what their part of a
matrix product takes, so that nothing has to change hands: which of the inner dimension's numbers a lane takes first
does not matter if weights lie in the same order.
"""

from typing import NamedTuple

WIDE = 4  # words that one look takes
AT_ONCE = 32  # looks of a thread before the first is used: each takes four registers
FAR = "ld.relaxed.gpu.global"  # what others wrote into the memory that all see
NEAR = "ld.shared"  # what they sent to this program
PATIENT = [".reg .pred calm;", ".reg .b32 spins, low, told;", "mov.u32 spins, 0;"]


class Tile(NamedTuple):
    """A piece of what others sent as lanes hold it: (rows / 16, blocks, 2 halves of rows, 2 products, 2 registers,
    numbers of a register, warps, 8 rows, 4 lanes), of which a lane asks for 16 bytes at once: the numbers of two
    registers of two products. Eight rows are one half.

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

    @property
    def halves(self) -> int:
        return min(2, self.rows // 8)

    @property
    def shape(self) -> str:
        rows = self.rows // 8 // self.halves
        return f"({rows}, {self.blocks}, {self.halves}, 2, 2, {self.each // 4}, {self.split}, 8, 4)"

    def inner(self) -> str:
        """Which numbers of the inner dimension a lane asks for; the first of each 16 bytes."""
        of_block, of_warp = _along(1, self.blocks), _along(6, self.split)
        return f"{of_block} * {4 * self.each} + {of_warp} * {self.length // self.split} + {_along(8, 4)} * {self.each}"

    def outer(self) -> str:
        """Which rows of the group."""
        halves = f"{_along(0, self.rows // 8 // self.halves)} * 16 + {_along(2, self.halves)} * 8"
        return f"{halves} + {_along(7, 8)}"

    def within(self) -> str:
        """Which of its 16 bytes' numbers."""
        return f"{_along(3, 2)} * {self.each // 2} + {_along(4, 2)} * {self.each // 4} + {_along(5, self.each // 4)}"

    def ordered(self, weights: str, columns: int) -> str:
        """Weights (warps, inner dimension, columns) as (warps, columns, inner dimension), this in the order in which
        lanes hold what it is multiplied by."""
        parted = f"tl.reshape({weights}, ({self.split}, {self.blocks}, 4, 2, 2, {self.each // 4}, {columns}))"
        moved = f"tl.permute({parted}, (0, 6, 1, 3, 4, 2, 5))"
        return f"tl.reshape({moved}, ({self.split}, {columns}, {self.length // self.split}))"

    def operand(self, heard: str) -> str:
        """What was heard as (warps, inner dimension, rows)."""
        shape = f"({self.split}, {self.length // self.split}, {self.rows})"
        return f"tl.reshape(tl.permute({heard}, (6, 1, 3, 4, 8, 5, 0, 2, 7)), {shape})"


class Grip(NamedTuple):
    """A piece of weights as lanes hold it that multiply by a tile: (columns / 16, blocks, 2 products, 2 registers,
    2 halves of columns, numbers of a register, warps, 8 columns, 4 lanes)."""

    tile: Tile
    width: int

    def inner(self) -> str:
        """Which numbers of the inner dimension; a lane of a tile has as many in a row."""
        each = self.tile.each
        strides = {1: (self.tile.blocks, 4 * each), 2: (2, each // 2), 3: (2, each // 4), 5: (each // 4, 1)}
        strides |= {6: (self.tile.split, self.tile.length // self.tile.split), 8: (4, each)}
        return " + ".join(f"{_along(axis, count)} * {stride}" for axis, (count, stride) in strides.items())

    def columns(self) -> str:
        return f"{_along(0, self.width // 16)} * 16 + {_along(4, 2)} * 8 + {_along(7, 8)}"

    def operand(self, held: str) -> str:
        """As (warps, columns, inner dimension), this in the order in which the tile has it."""
        shape = f"({self.tile.split}, {self.width}, {self.tile.length // self.tile.split})"
        return f"tl.reshape(tl.permute({held}, (6, 0, 4, 7, 1, 2, 3, 8, 5)), {shape})"


def gripping(itemsize: int, interpreted: bool) -> str:
    """A function that loads as Triton lays numbers out if nobody asks it to: as products want them."""
    head = "\n@triton.jit\ndef gripped(place, mask, other):\n"
    if interpreted:
        return f"{head}    return tl.load(place, mask=mask, other=other)\n"
    pack = 4 // itemsize
    names = "ab"[:pack]
    lines = [f".reg .b{8 * itemsize} {', '.join(names)};", ".reg .pred there;"]
    for number, name in enumerate(names):
        lines += [f"mov.b{8 * itemsize} {name}, 0;", f"setp.ne.s32 there, ${1 + pack + number}, 0;"]
        lines.append(f"@there ld.global.b{8 * itemsize} {name}, [${1 + number}];")
    lines.append("mov.b32 $0, {a, b};" if pack == 2 else "mov.b32 $0, a;")
    kinds = ",".join(["=r", *["l"] * pack, *["r"] * pack])
    given = "[place.to(tl.int64), mask.to(tl.int32)]"
    text = "{" + " ".join(lines) + "}"
    call = f'tl.inline_asm_elementwise("{text}", "{kinds}", {given}, dtype=found.dtype'
    body = ["found = tl.zeros(place.shape, place.dtype.element_ty)", "rounds = 0", "while rounds < 1:"]
    body += [f"    found = {call}, is_pure=False, pack={pack})", "    rounds += 1", "return found"]
    return head + "\n".join(f"    {line}" for line in body) + "\n"


def bringing() -> str:
    """A function that has memory brought into the cache: who looks where nothing is yet would wait for it."""
    call = 'tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [place], dtype=tl.int32'
    return f"\n@triton.jit\ndef bring(place):\n    {call}, is_pure=False, pack=1)\n"


def _along(axis: int, count: int) -> str:
    """0, 1, … along one of a tile's nine axes."""
    return f"tl.arange(0, {count})[{', '.join(':' if one == axis else 'None' for one in range(9))}]"


def function(name: str, tensors: int, tile: Tile, lines: list[str], interpreted: bool, near: bool = False) -> str:
    """A function of pointers, the alarm, patience and dtype: all the numbers there. `lines` of assembly are from
    `awaited` or `taken`. `near`: pointers into shared memory."""
    pointers = [f"p{number}" for number in range(tensors)]
    head = f"\n@triton.jit\ndef {name}({', '.join(pointers)}, alarm, limit, KIND: tl.constexpr):\n"
    if interpreted:  # programs run one after another, and none can wait
        loaded = ", ".join(f"tl.load({p} + ({tile.within()}))" for p in pointers)
        return f"{head}    return {loaded}\n"
    text = "\\n".join(lines)
    many = tile.looks * tile.each
    kinds = ["=&r"] * (tensors * tile.looks * WIDE) + ["r" if near else "l"] * (tensors * many)
    kinds += ["l"] * many + ["r"] * many
    given = ", ".join([*pointers, "alarm.to(tl.int64)", "limit"])
    made = f"({', '.join(['w0.dtype'] * tensors)})" if tensors > 1 else "w0.dtype"
    call = f'tl.inline_asm_elementwise("{text}", "{",".join(kinds)}", [{given}], dtype={made}, is_pure=False'
    names = ", ".join(f"w{number}" for number in range(tensors))
    body = [f"{p} = tl.broadcast_to({p}.to(tl.int{32 if near else 64}), {tile.shape})" for p in pointers]
    body += [f"w{number} = tl.zeros({tile.shape}, KIND)" for number in range(tensors)]
    # a loop of one round: the compiler repeats assembly in every layout that somebody wants, but never a loop
    body += ["rounds = 0", "while rounds < 1:", f"    {names} = {call}, pack={many})", "    rounds += 1"]
    return head + "\n".join(f"    {line}" for line in [*body, f"return {names}"]) + "\n"


def taken(tensors: int, tile: Tile, load: str = FAR) -> list[str]:
    """Assembly: all words, which are known to be there."""
    return ["{", *(text for text, _ in _asked(tensors, tile, load)), "}"]


def awaited(tensors: int, tile: Tile, scouting: bool) -> list[str]:
    """Assembly: all words, once nothing is missing.

    Of words that hold two numbers each may be missing. `scouting`: a thread waits for its first, then asks for all.
    """
    halves, looks = tile.itemsize == 2, tile.looks
    outputs, pointers = tensors * WIDE * looks, tensors * looks * tile.each

    def missing(taken: list[str]) -> list[str]:
        found = ["mov.u32 most, 0;"]
        found += [f"max.{'u16x2' if halves else 'u32'} most, most, {word};" for word in taken]
        if halves:
            found += ["shl.b32 low, most, 16;", "max.u32 most, most, low;"]
        least = "0xffff0000" if halves else "0xffffffff"
        return [*found, f"setp.ge.u32 absent, most, {least};", "vote.sync.any.pred absent, absent, 0xffffffff;"]

    alarm, limit = f"${outputs + pointers}", f"${outputs + pointers + looks * tile.each}"
    asked = _asked(tensors, tile, FAR)
    lines = ["{", ".reg .pred absent;", ".reg .b32 most;", *PATIENT, "again:"]
    if scouting:
        lines += [asked[0][0], *missing(asked[0][1]), "@absent bra count;"]
    lines += [text for text, _ in asked]
    lines += [*missing([word for _, taken in asked for word in taken]), "@!absent bra done;", "count:"]
    return [*lines, *patient("again", alarm, limit, 256), *ended(alarm), "}"]


def patient(again: str, alarm: str, limit: str, often: int) -> list[str]:
    """Assembly, after PATIENT and before `ended`: once more, unless patience has ended here or elsewhere."""
    lines = ["add.u32 spins, spins, 1;", f"setp.ge.u32 calm, spins, {limit};", "@calm bra tired;"]
    # whether others gave up is asked now and then, since the answer has to be waited for
    lines += [f"and.b32 low, spins, {often - 1};", "setp.ne.u32 calm, low, 0;", f"@calm bra {again};"]
    lines += [f"ld.relaxed.gpu.global.b32 told, [{alarm}];", "setp.eq.u32 calm, told, 0;", f"@calm bra {again};"]
    return [*lines, "bra done;"]


def ended(alarm: str) -> list[str]:
    return ["tired:", "mov.u32 told, 1;", f"st.relaxed.gpu.global.b32 [{alarm}], told;", "done:"]


def _asked(tensors: int, tile: Tile, load: str) -> list[tuple[str, list[str]]]:
    """Each look, and the words that it takes; all its numbers have the same pointer."""
    found = []
    for one in range(tensors * tile.looks):
        words = [f"${one * WIDE + word}" for word in range(WIDE)]
        pointer = f"${tensors * tile.looks * WIDE + one * tile.each}"
        found.append((f"{load}.v4.b32 {{{', '.join(words)}}}, [{pointer}];", words))
    return found
