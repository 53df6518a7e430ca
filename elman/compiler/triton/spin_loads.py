"""Fragment loads: PTX that loads values of other thread blocks as mma operands, 16 bytes at a time. Spin loads are from
global memory and poll; after an mbarrier (from shared memory) or a cluster barrier the same loads are issued once.

Unwritten memory holds a sentinel, a NaN pattern that no result has (elman.ops.kernel_timeout). A thread loads all
vectors it needs and loads again while any element is the sentinel. A value so takes one trip through the L2 cache
instead of three (raise a counter after the store, see it, load the value).

    producer  st.global ------> L2 ------> ld.relaxed.gpu.v4   consumer: sentinel? again : mma.sync

Each lane loads its own fragment of the mma operand, so no shuffle follows. A lane's 16 bytes are consecutive in K, but
mma takes K in pairs per lane; the order of K is free as long as weights use the same permutation: `match_weights` for
weights in shared memory, `WeightTile` for those in registers.

Symbols: R rows of a group, K elements of the tile (`length`), W warps that split K (`split_k`), e elements per 16 bytes
(8 of 16 bits, 4 of float32). Example: R 8, K 512, W 8, bf16: each warp has 64 of K, a lane 2 vectors of 16 bytes.
"""

from typing import NamedTuple

WORDS = 4  # 32-bit registers that one vector load fills
LOADS_IN_FLIGHT = 32  # vector loads of a thread before the first is used
GLOBAL_LOAD = "ld.relaxed.gpu.global"  # sees stores of all programs; bypasses L1
SHARED_LOAD = "ld.shared"  # what other programs of the cluster sent to this one
SPIN_REGISTERS = [".reg .pred more;", ".reg .b32 spins, low, flag;", "mov.u32 spins, 0;"]


class ValueTile:
    """A K tile of R rows as the B operand of mma, as lanes hold it. Its nine axes are

        (R/16, K blocks, 2 row halves, 2 mma steps, 2 registers, elements per register, warps, 8 rows, 4 lanes)

    A lane loads 16 bytes at once: two registers of two mma steps. With R = 8 there is one row half. In Triton's default
    layout of this shape the last three axes are warps and lanes, the others registers: where mma wants each element, so
    that the reshape to (warps, K, rows) moves no data.
    """

    def __init__(self, rows: int, length: int, split_k: int, itemsize: int):
        self.rows, self.length, self.split_k, self.itemsize = rows, length, split_k, itemsize
        self.per_load = 16 // itemsize  # elements in 16 bytes
        self.k_blocks = length // split_k // (4 * self.per_load)  # per warp; in a block each of 4 lanes loads 16 bytes
        self.loads = rows // 8 * self.k_blocks  # vector loads per thread
        self.row_halves = min(2, rows // 8)
        blocks, e = rows // 8 // self.row_halves, self.per_load
        self.shape = f"({blocks}, {self.k_blocks}, {self.row_halves}, 2, 2, {e // 4}, {split_k}, 8, 4)"

    def k_index(self) -> str:
        """Triton text: position in K of the first element of each lane's 16 bytes."""
        block, warp = _axis(1, self.k_blocks), _axis(6, self.split_k)
        per_warp = self.length // self.split_k
        return f"{block} * {4 * self.per_load} + {warp} * {per_warp} + {_axis(8, 4)} * {self.per_load}"

    def row_index(self) -> str:
        """Triton text: row within the group."""
        halves = f"{_axis(0, self.rows // 8 // self.row_halves)} * 16 + {_axis(2, self.row_halves)} * 8"
        return f"{halves} + {_axis(7, 8)}"

    def element_index(self) -> str:
        """Triton text: position within a lane's 16 bytes."""
        e = self.per_load
        return f"{_axis(3, 2)} * {e // 2} + {_axis(4, 2)} * {e // 4} + {_axis(5, e // 4)}"

    def match_weights(self, weights: str, columns: int) -> str:
        """Weights (warps, K, columns) as (warps, columns, K) with the K order of this tile."""
        split = f"tl.reshape({weights}, ({self.split_k}, {self.k_blocks}, 4, 2, 2, {self.per_load // 4}, {columns}))"
        permuted = f"tl.permute({split}, (0, 6, 1, 3, 4, 2, 5))"
        return f"tl.reshape({permuted}, ({self.split_k}, {columns}, {self.length // self.split_k}))"

    def operand(self, values: str) -> str:
        """The loaded tile as (warps, K, rows)."""
        shape = f"({self.split_k}, {self.length // self.split_k}, {self.rows})"
        return f"tl.reshape(tl.permute({values}, (6, 1, 3, 4, 8, 5, 0, 2, 7)), {shape})"


class WeightTile(NamedTuple):
    """Weights as the A operand of mma, held in registers and matching a ValueTile. Its nine axes are

    (columns/16, K blocks, 2 mma steps, 2 registers, 2 column halves, elements per register, warps, 8 columns, 4 lanes)
    """

    values: ValueTile
    columns: int

    def k_index(self) -> str:
        """Triton text: position in K, so that a lane has the K elements that it loads of the values."""
        tile, e = self.values, self.values.per_load
        strides = {1: (tile.k_blocks, 4 * e), 2: (2, e // 2), 3: (2, e // 4), 5: (e // 4, 1)}
        strides |= {6: (tile.split_k, tile.length // tile.split_k), 8: (4, e)}
        return " + ".join(f"{_axis(axis, count)} * {stride}" for axis, (count, stride) in strides.items())

    def column_index(self) -> str:
        return f"{_axis(0, self.columns // 16)} * 16 + {_axis(4, 2)} * 8 + {_axis(7, 8)}"

    def operand(self, weights: str) -> str:
        """The loaded weights as (warps, columns, K)."""
        tile = self.values
        shape = f"({tile.split_k}, {self.columns}, {tile.length // tile.split_k})"
        return f"tl.reshape(tl.permute({weights}, (6, 0, 4, 7, 1, 2, 3, 8, 5)), {shape})"


def _axis(axis: int, count: int) -> str:
    """Triton text: 0, 1, ... along one of a tile's nine axes."""
    return f"tl.arange(0, {count})[{', '.join(':' if one == axis else 'None' for one in range(9))}]"


def weight_load_function(itemsize: int, interpreted: bool) -> str:
    """Source of `load_weights`, which leaves weights in Triton's default layout, the one that operands have.

    tl.load would choose a coalesced layout, and each step would convert it through shared memory.
    """
    head = "\n@triton.jit\ndef load_weights(pointer, mask, other):\n"
    if interpreted:
        return f"{head}    return tl.load(pointer, mask=mask, other=other)\n"
    pack = 4 // itemsize
    names = "ab"[:pack]
    lines = [f".reg .b{8 * itemsize} {', '.join(names)};", ".reg .pred valid;"]
    for number, name in enumerate(names):
        lines += [f"mov.b{8 * itemsize} {name}, 0;", f"setp.ne.s32 valid, ${1 + pack + number}, 0;"]
        lines.append(f"@valid ld.global.b{8 * itemsize} {name}, [${1 + number}];")
    lines.append("mov.b32 $0, {a, b};" if pack == 2 else "mov.b32 $0, a;")
    constraints = ",".join(["=r", *["l"] * pack, *["r"] * pack])
    arguments = "[pointer.to(tl.int64), mask.to(tl.int32)]"
    text = "{" + " ".join(lines) + "}"
    call = f'tl.inline_asm_elementwise("{text}", "{constraints}", {arguments}, dtype=found.dtype'
    body = ["found = tl.zeros(pointer.shape, pointer.dtype.element_ty)", "rounds = 0", "while rounds < 1:"]
    body += [f"    found = {call}, is_pure=False, pack={pack})", "    rounds += 1", "return found"]
    return head + "\n".join(f"    {line}" for line in body) + "\n"


def prefetch_function() -> str:
    """Source of `prefetch`: brings addresses into the L2 cache, since a poll of memory outside of it waits for DRAM."""
    call = 'tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointer], dtype=tl.int32'
    return f"\n@triton.jit\ndef prefetch(pointer):\n    {call}, is_pure=False, pack=1)\n"


def load_function(
    name: str, tensors: int, tile: ValueTile, lines: list[str], interpreted: bool, shared: bool = False
) -> str:
    """Source of a device function (pointers, timeout_flag, max_spins, DTYPE) -> tiles. `lines`: PTX of `polling_loads`
    or `plain_loads`. `shared`: pointers are 32-bit addresses of shared memory."""
    pointers = [f"p{number}" for number in range(tensors)]
    head = f"\n@triton.jit\ndef {name}({', '.join(pointers)}, timeout_flag, max_spins, DTYPE: tl.constexpr):\n"
    if interpreted:  # programs run one after another: polling would never end
        loaded = ", ".join(f"tl.load({p} + ({tile.element_index()}))" for p in pointers)
        return f"{head}    return {loaded}\n"
    text = "\\n".join(lines)
    elements = tile.loads * tile.per_load  # per thread and tensor
    constraints = ["=&r"] * (tensors * tile.loads * WORDS) + ["r" if shared else "l"] * (tensors * elements)
    constraints += ["l"] * elements + ["r"] * elements
    arguments = ", ".join([*pointers, "timeout_flag.to(tl.int64)", "max_spins"])
    result = f"({', '.join(['w0.dtype'] * tensors)})" if tensors > 1 else "w0.dtype"
    call = f'tl.inline_asm_elementwise("{text}", "{",".join(constraints)}", [{arguments}], dtype={result}'
    names = ", ".join(f"w{number}" for number in range(tensors))
    body = [f"{p} = tl.broadcast_to({p}.to(tl.int{32 if shared else 64}), {tile.shape})" for p in pointers]
    body += [f"w{number} = tl.zeros({tile.shape}, DTYPE)" for number in range(tensors)]
    # a loop of one round: the compiler duplicates inline assembly for each layout that is needed, but never a loop
    body += ["rounds = 0", "while rounds < 1:", f"    {names} = {call}, is_pure=False, pack={elements})"]
    return head + "\n".join(f"    {line}" for line in [*body, "    rounds += 1", f"return {names}"]) + "\n"


def plain_loads(tensors: int, tile: ValueTile, load: str = GLOBAL_LOAD) -> list[str]:
    """PTX: all vectors, loaded once; they are known to be complete."""
    return ["{", *(text for text, _ in _loads(tensors, tile, load)), "}"]


def polling_loads(tensors: int, tile: ValueTile, probe: bool) -> list[str]:
    """PTX: all vectors, loaded until no element is the sentinel.

    `probe`: poll the first vector alone, then load all; less traffic where a thread needs several values.
    """
    halves, loads = tile.itemsize == 2, tile.loads
    outputs, pointers = tensors * WORDS * loads, tensors * loads * tile.per_load

    def sentinel(words: list[str]) -> list[str]:
        """The maximum of all words as unsigned integers: the sentinel has all bits set. A word of two 16-bit elements
        may miss either."""
        found = ["mov.u32 most, 0;"]
        found += [f"max.{'u16x2' if halves else 'u32'} most, most, {word};" for word in words]
        if halves:
            found += ["shl.b32 low, most, 16;", "max.u32 most, most, low;"]
        least = "0xffff0000" if halves else "0xffffffff"
        return [*found, f"setp.ge.u32 absent, most, {least};", "vote.sync.any.pred absent, absent, 0xffffffff;"]

    flag, limit = f"${outputs + pointers}", f"${outputs + pointers + loads * tile.per_load}"
    vectors = _loads(tensors, tile, GLOBAL_LOAD)
    lines = ["{", ".reg .pred absent;", ".reg .b32 most;", *SPIN_REGISTERS, "again:"]
    if probe:
        lines += [vectors[0][0], *sentinel(vectors[0][1]), "@absent bra count;"]
    lines += [text for text, _ in vectors]
    lines += [*sentinel([word for _, words in vectors for word in words]), "@!absent bra done;", "count:"]
    return [*lines, *spin_again("again", flag, limit, 256), *spin_end(flag), "}"]


def spin_again(label: str, flag: str, limit: str, polls_per_check: int) -> list[str]:
    """PTX, between SPIN_REGISTERS and `spin_end`: jumps to the label, unless this program or another one timed out."""
    lines = ["add.u32 spins, spins, 1;", f"setp.ge.u32 more, spins, {limit};", "@more bra timeout;"]
    # the flag of other programs is loaded now and then only: that load has latency too
    lines += [f"and.b32 low, spins, {polls_per_check - 1};", "setp.ne.u32 more, low, 0;", f"@more bra {label};"]
    lines += [f"ld.relaxed.gpu.global.b32 flag, [{flag}];", "setp.eq.u32 more, flag, 0;", f"@more bra {label};"]
    return [*lines, "bra done;"]


def spin_end(flag: str) -> list[str]:
    return ["timeout:", "mov.u32 flag, 1;", f"st.relaxed.gpu.global.b32 [{flag}], flag;", "done:"]


def _loads(tensors: int, tile: ValueTile, load: str) -> list[tuple[str, list[str]]]:
    """Each vector load and the registers it fills; Triton passes a pointer per element, of which the first is used."""
    found = []
    for one in range(tensors * tile.loads):
        words = [f"${one * WORDS + word}" for word in range(WORDS)]
        pointer = f"${tensors * tile.loads * WORDS + one * tile.per_load}"
        found.append((f"{load}.v4.b32 {{{', '.join(words)}}}, [{pointer}];", words))
    return found
