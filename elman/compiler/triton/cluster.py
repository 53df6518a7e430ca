"""Thread block clusters: launch, cluster barrier, and all-reduce of partial sums in distributed shared memory.

A total over all H units (as in layer norm) is a sum of P partial sums, one per program. Each program writes its own to
the exchange buffer of every program (mapa, st.shared::cluster), and each adds all P up:

    rank 0: s0 --+--> [s0 s1 .. sP-1] of rank 0 -> total
    rank 1: s1 --+--> [s0 s1 .. sP-1] of rank 1 -> total      one slot of the buffer per row, total and program
        ...

The buffer lies behind the shared memory that Triton allocates, and has two halves that steps use in turn: who writes to
a half has synchronized with all others since they read it. Layout: 2 halves of (stage, row, program, total) float32
(empty without totals), then the buffers of `cluster_exchange.AsyncExchange`, for values of units (only with st.async).
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from elman.compiler.triton.cluster_exchange import LINE, AsyncExchange
from elman.compiler.triton.spin_loads import SPIN_REGISTERS, spin_again, spin_end
from elman.compiler.triton.triton_ops import asm_function

PORTABLE_CLUSTER = 8  # programs; the largest cluster that every GPU with clusters can launch
LARGE_CLUSTER = 16  # programs; on Hopper, as a non-portable size
SUMS_IN_FLIGHT = 32  # partial sums that a thread loads before it adds the first
DEFAULT_SHARED = 48 * 1024  # bytes of dynamic shared memory that a launch may ask for without an attribute
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
POLLS_PER_CHECK = 1024  # polls of shared memory between two loads of the timeout flag

# device functions that return their operand, so that uses of it stay behind them
ORDERING = {
    "cluster_arrive": ["barrier.cluster.arrive.release.aligned;"],
    "cluster_wait": ["barrier.cluster.wait.acquire.aligned;"],
    "ordered": [],
}


class ExchangeBuffer:
    """Layout and device functions. `stages`: how many totals each stage with totals has. `polled`: programs poll for
    partial sums that are the sentinel until written, instead of waiting at the cluster barrier."""

    def __init__(
        self, rows: int, programs: int, stages: Sequence[int], polled: bool = False, values: AsyncExchange | None = None
    ):
        self.rows, self.programs, self.stages, self.polled, self.values = rows, programs, stages, polled, values
        self.half_bytes = -(-sum(rows * self.row_bytes(totals) for totals in stages) // LINE) * LINE
        self.total_bytes = 2 * self.half_bytes + (values.total_bytes if values else 0)

    def row_bytes(self, totals: int) -> int:
        """Of all programs' partial sums of a row; 16 bytes of padding avoid bank conflicts between rows."""
        return -(-self.programs * _slots(totals) // 4) * 16 + 16

    def address(self, stage: int, half: str, program: str) -> str:
        """Triton text: where a program's partial sums of a stage lie, side by side."""
        before = sum(self.rows * self.row_bytes(totals) for totals in self.stages[:stage])
        slot_bytes = _slots(self.stages[stage]) * 4
        return f"{half} + {before} + local_row * {self.row_bytes(self.stages[stage])} + {program} * {slot_bytes}"

    def functions(self) -> str:
        found = self._exchange_base()
        for name, lines in ORDERING.items():
            found += asm_function(name, ["x"], [*lines, "mov.b32 $0, $1;"], ["=r", "r"], ["x"])
        for totals in sorted(set(self.stages)):
            found += self._send_sums(totals) + self._clear_sums(totals) + self._add_sums(totals)
        return found + (self.values.functions() if self.values else "")

    def _exchange_base(self) -> str:
        """Address of the buffer, the last bytes of the launch's dynamic shared memory, which starts at global_smem, a
        symbol of Triton's; x is there because Triton wants an operand."""
        lines = [".reg .b32 size;", "mov.u32 size, %dynamic_smem_size;", "mov.u32 $0, global_smem;"]
        lines += ["add.u32 $0, $0, size;", f"sub.u32 $0, $0, {self.total_bytes};"]
        return asm_function("exchange_base", ["x"], lines, ["=r", "r"], ["x"], pure=True)

    def _send_sums(self, totals: int) -> str:
        """Partial sums into the buffer of each program; lane q writes to program q."""
        words = [f"w{number}" for number in range(totals)]
        lines = [".reg .pred one;", ".reg .b32 remote;", f"setp.lt.u32 one, $2, {self.programs};"]
        lines.append("mapa.shared::cluster.u32 remote, $1, $2;")
        lines += _vector_stores("@one st.shared::cluster", "remote", [f"${3 + number}" for number in range(totals)])
        constraints = ["=r", *["r"] * (2 + totals)]
        arguments = ["address", "peer", *(f"{word}.to(tl.int32, bitcast=True)" for word in words)]
        name, parameters = f"send_sums{totals}", ["address", "peer", *words]
        return asm_function(name, parameters, [*lines, "mov.b32 $0, $2;"], constraints, arguments)

    def _clear_sums(self, totals: int) -> str:
        """The sentinel into slots that will be polled."""
        lines = [".reg .pred one;", f"setp.lt.u32 one, $2, {self.programs};"]
        lines += _vector_stores("@one st.shared", "$1", ["-1"] * totals)
        names = ["address", "peer"]
        return asm_function(f"clear_sums{totals}", names, [*lines, "mov.b32 $0, $2;"], ["=r", "r", "r"], names)

    def _add_sums(self, totals: int) -> str:
        """The totals of a row: all programs' partial sums, added; polled until none is the sentinel if `polled`."""
        slots = _slots(totals)
        chunk = max(4 // slots, SUMS_IN_FLIGHT // slots)  # programs whose sums are loaded at once
        lines = [f".reg .b32 {', '.join(f'w{n}' for n in range(chunk * slots))};", ".reg .pred absent;"]
        lines += [".reg .b32 most;", *SPIN_REGISTERS]
        address, flag, limit = (f"${totals + n}" for n in range(3))
        load = "ld.volatile.shared" if self.polled else "ld.shared"
        for begin in range(0, self.programs, chunk):
            programs = range(min(chunk, self.programs - begin))
            lines.append(f"again{begin}:")
            for first in range(0, len(programs) * slots, 4):
                words = ", ".join(f"w{first + n}" for n in range(4))
                lines.append(f"{load}.v4.b32 {{{words}}}, [{address}+{(begin * slots + first) * 4}];")
            sums = [[f"w{one * slots + number}" for one in programs] for number in range(totals)]
            if self.polled:
                lines += ["mov.u32 most, 0;", *(f"max.u32 most, most, {word};" for own in sums for word in own)]
                lines += ["setp.eq.u32 absent, most, -1;", "vote.sync.any.pred absent, absent, 0xffffffff;"]
                lines.append(f"@!absent bra here{begin};")
                lines += [*spin_again(f"again{begin}", flag, limit, POLLS_PER_CHECK), f"here{begin}:"]
            for number, own in enumerate(sums):
                lines += _tree_sum(own)
                op, left = ("add.f32", f"${number}, ") if begin else ("mov.b32", "")
                lines.append(f"{op} ${number}, {left}{own[0]};")
        if self.polled:
            lines += ["bra done;", *spin_end(flag)]
        constraints = [*["=&r"] * totals, "r", "l", "r"]
        result = f"({', '.join(['tl.float32'] * totals)})" if totals > 1 else "tl.float32"
        arguments = ["address", "timeout_flag.to(tl.int64)", "max_spins"]
        parameters = ["address", "timeout_flag", "max_spins"]
        return asm_function(f"add_sums{totals}", parameters, lines, constraints, arguments, result, pure=True)


def _slots(totals: int) -> int:
    """float32 slots for a program's sums of a stage: a power of two, so that vector accesses are aligned."""
    return 1 << (totals - 1).bit_length()


def _vector_stores(store: str, address: str, words: list[str]) -> list[str]:
    """PTX: consecutive words to an address, as vectors of four, two and one."""
    lines, first = [], 0
    while first < len(words):
        count = 4 if len(words) - first >= 4 else 2 if len(words) - first >= 2 else 1
        own = words[first : first + count]
        form, operands = (f"v{count}.b32", f"{{{', '.join(own)}}}") if count > 1 else ("b32", own[0])
        lines.append(f"{store}.{form} [{address}+{first * 4}], {operands};")
        first += count
    return lines


def _tree_sum(words: list[str]) -> list[str]:
    """PTX: the sum into the first register, pairwise, for short dependency chains."""
    lines, left = [], list(words)
    while len(left) > 1:
        lines += [f"add.f32 {one}, {one}, {other};" for one, other in zip(left[::2], left[1::2], strict=False)]
        left = left[::2]
    return lines


def cluster_launch(compiled: Any, programs: int, buffer: ExchangeBuffer) -> Any:
    """Makes a compiled kernel launch in clusters of `programs`, with the buffer behind Triton's own shared memory.

    Triton's clusters spread one program over several processors; here each processor has a program of its own, so only
    the launch is changed. The grid counts clusters.
    """
    compiled._init_handles()
    shared = compiled.metadata.shared
    total = -(-shared // LINE) * LINE + buffer.total_bytes
    if shared <= DEFAULT_SHARED < total:
        function = ctypes.c_void_p(compiled.function)
        failed = ctypes.CDLL("libcuda.so.1").cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, total)
        if failed:
            raise RuntimeError(f"no {total} bytes of shared memory for a program (CUDA error {failed})")
    compiled.packed_metadata = compiled.metadata.num_warps, programs, total
    return compiled
