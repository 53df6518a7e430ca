"""All-gather of values within a cluster by `st.async`: each program writes its block of units into the shared memory of
all programs (distributed shared memory), and an mbarrier there counts the bytes that have arrived.

    program p, a new state at the end of step t - 1         program q (every q, p included)
    st.shared  own block -> own buffer                      t - 1: mbarrier.arrive.expect_tx  P * block bytes
    bar.sync   all threads have stored it, and read step t - 1's
    st.async   own block -> buffer of q, 16 bytes each ---> complete_tx on the mbarrier of q
                                                            t:     mbarrier.try_wait.parity -> ld.shared, mma

Symbols: R rows, U units per program, P programs of the cluster, V exchanged values per step (products' inputs). In the
functions `value` is one of 0 .. V - 1, and `use` numbers its exchanges: `step` for what step `step` reads.
Layout, from `inbox` on: V x 2 buffers of P x R x U elements (P blocks, each row-major), then V x 2 mbarriers.
Example: a GRU of 512 units forward in bf16: V 1, P 16, R 8, U 32: a block is 512 bytes, a buffer 8 kB, in all 16 kB.

Two buffers that steps use in turn suffice without any cluster barrier: a program sends for step t + 2 only after it
has received all of step t + 1, and each program sent its part of that after a bar.sync (tl.debug_barrier) behind all
its threads' loads from the buffer of step t. An mbarrier ends a phase at each use of its buffer, in every second step,
so step t waits for parity t // 2 % 2.
"""

from elman.compiler.triton.spin_loads import SPIN_REGISTERS, spin_again, spin_end
from elman.compiler.triton.triton_ops import asm_function

PACKET = 16  # bytes of one st.async
MBARRIER = 8  # bytes of an mbarrier
LINE = 128  # bytes; alignment of the parts of shared memory
SLEEP = 1000  # nanoseconds that mbarrier.try_wait may suspend a thread
SLEEPS_PER_CHECK = 64  # try_waits between two loads of the timeout flag
ST_ASYNC = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"


class AsyncExchange:
    """Layout and device functions. A program sends its block to itself too, so that all mbarriers count alike."""

    def __init__(self, rows: int, units: int, programs: int, itemsize: int, threads: int, values: int):
        self.rows, self.units, self.programs, self.itemsize = rows, units, programs, itemsize
        self.threads, self.values = threads, values
        self.row_bytes = units * itemsize  # of one program's units
        self.block_bytes = rows * self.row_bytes
        self.buffer_bytes = programs * self.block_bytes
        self.total_bytes = -(-values * 2 * (self.buffer_bytes + MBARRIER) // LINE) * LINE

    def buffer(self, value: int, use: str) -> str:
        """Triton text: address of the buffer of the `use`-th exchange. Use 0 of a state is the one before step 0."""
        return f"inbox + {value * 2 * self.buffer_bytes} + {use} % 2 * {self.buffer_bytes}"

    def own_block(self, value: int, use: str) -> str:
        return f"{self.buffer(value, use)} + rank * {self.block_bytes}"

    def mbarrier(self, value: int, use: str) -> str:
        first = self.values * 2 * self.buffer_bytes + value * 2 * MBARRIER
        return f"inbox + {first} + {use} % 2 * {MBARRIER}"

    def offset(self, row: str, unit: str) -> str:
        """Triton text: bytes from the start of a buffer to one of all H units."""
        program, own = f"({unit}) // {self.units}", f"({unit}) % {self.units}"
        return f"{program} * {self.block_bytes} + {row} * {self.row_bytes} + {own} * {self.itemsize}"

    # calls of the device functions below

    def receive_call(self, value: int, use: str) -> str:
        """Gives the buffer's address once all blocks have arrived."""
        parity = f"{use} // 2 % 2"
        return f"receive({self.buffer(value, use)}, {self.mbarrier(value, use)}, {parity}, timeout_flag, max_spins)"

    def expect_call(self, value: int, use: str) -> str:
        """Must precede the step's global loads: an arrival is a release, so it waits for all loads already issued."""
        return f"expect_bytes({self.mbarrier(value, use)})"

    def send_call(self, value: int, use: str) -> str:
        return f"send_block({self.own_block(value, use)}, {self.mbarrier(value, use)}, rank)"

    # device functions, as source

    def functions(self) -> str:
        before = self._init_mbarriers() + self._stage_block()
        return before + self._expect_bytes() + self._send_block() + self._receive()

    def _init_mbarriers(self) -> str:
        """All mbarriers with an arrival count of one: `expect_bytes` by thread 0, once per use."""
        lines = [".reg .pred one;", ".reg .b32 id;", "mov.u32 id, %tid.x;", "setp.eq.u32 one, id, 0;"]
        lines += [f"@one mbarrier.init.shared.b64 [$1+{n * MBARRIER}], 1;" for n in range(2 * self.values)]
        lines += ["@one fence.mbarrier_init.release.cluster;", "mov.b32 $0, $1;"]
        return asm_function("init_mbarriers", ["first"], lines, ["=r", "r"], ["first"])

    def _stage_block(self) -> str:
        """Values into the program's own block. Its last reads are over: threads synchronized since, before a send."""
        bits = 8 * self.itemsize
        lines = [".reg .pred one;", f".reg .b{bits} own;", f"setp.lt.u32 one, $2, {self.units};"]
        lines.append("cvt.u16.u32 own, $3;" if bits == 16 else "mov.b32 own, $3;")
        lines += [f"@one st.shared.b{bits} [$1], own;", "mov.b32 $0, $2;"]
        arguments = ["address", "column", f"value.to(tl.int{bits}, bitcast=True).to(tl.int32)"]
        return asm_function("stage_block", ["address", "column", "value"], lines, ["=r", "r", "r", "r"], arguments)

    def _expect_bytes(self) -> str:
        """Packets may arrive before this; the mbarrier's phase still ends only after this arrival."""
        lines = [".reg .pred one;", ".reg .b32 id;", "mov.u32 id, %tid.x;", "setp.eq.u32 one, id, 0;"]
        lines += [f"@one mbarrier.arrive.expect_tx.shared.b64 _, [$1], {self.buffer_bytes};", "mov.b32 $0, $1;"]
        return asm_function("expect_bytes", ["mbarrier"], lines, ["=r", "r"], ["mbarrier"])

    def _send_block(self) -> str:
        """The own block to all programs. Packets and destinations are divided evenly among the threads; each program
        starts with itself as destination, so that not all write to the same one. `gap` is the distance from the block
        to the mbarrier, the same in every program."""
        packets, programs, threads = self.block_bytes // PACKET, self.programs, self.threads
        senders = max(1, min(programs, threads // packets))  # threads that send the same packet, to other programs each
        lines = [".reg .pred one;", ".reg .b32 id, sender, packet, peer, remote, gap, from, to, a, b, c, d;"]
        lines += ["mov.u32 id, %tid.x;", *_divmod("sender", "packet", "id", packets), "sub.u32 gap, $2, $1;"]
        for first in range(0, packets, threads):
            # a predicate that is always true would still cost a branch
            some = packets * senders < threads or first + threads > max(packets, threads)
            if first:
                lines.append(f"add.u32 packet, id, {first};")
            lines += [f"mad.lo.u32 from, packet, {PACKET}, $1;", f"setp.lt.u32 one, id, {packets * senders - first};"]
            lines.append(f"{'@one ' * some}ld.shared.v4.b32 {{a, b, c, d}}, [from];")
            for begin in range(0, programs, senders):
                over = begin + senders > programs
                if over:
                    lines.append(f"setp.lt.and.u32 one, sender, {programs - begin}, one;")
                lines += [f"add.u32 peer, $3, {begin};", *["add.u32 peer, peer, sender;"] * (senders > 1)]
                # peer % programs: the subtraction wraps around to a huge number where peer < programs
                lines += [f"sub.u32 remote, peer, {programs};", "min.u32 peer, peer, remote;"]
                lines += ["mapa.shared::cluster.u32 remote, $1, peer;", "add.u32 to, remote, gap;"]
                lines += [f"mad.lo.u32 remote, packet, {PACKET}, remote;"]
                lines.append(f"{'@one ' * (some or over)}{ST_ASYNC} [remote], {{a, b, c, d}}, [to];")
        names = ["block", "mbarrier", "rank"]
        return asm_function("send_block", names, [*lines, "mov.b32 $0, $1;"], ["=r", *["r"] * 3], names)

    def _receive(self) -> str:
        """Every thread waits. `max_spins` counts try_waits."""
        lines = [".reg .pred there;", *SPIN_REGISTERS, "again:"]
        # not .acquire.cluster, which would invalidate L1; the buffers are in shared memory
        lines += [f"mbarrier.try_wait.parity.shared.b64 there, [$2], $3, {SLEEP};", "@there bra done;"]
        lines += [*spin_again("again", "$4", "$5", SLEEPS_PER_CHECK), *spin_end("$4"), "mov.b32 $0, $1;"]
        names = ["buffer", "mbarrier", "parity", "timeout_flag", "max_spins"]
        arguments = [*names[:3], "timeout_flag.to(tl.int64)", "max_spins"]
        return asm_function("receive", names, lines, ["=r", "r", "r", "r", "l", "r"], arguments)


def _divmod(quotient: str, remainder: str, number: str, by: int) -> list[str]:
    if by & (by - 1):
        return [f"div.u32 {quotient}, {number}, {by};", f"rem.u32 {remainder}, {number}, {by};"]
    return [f"shr.u32 {quotient}, {number}, {by.bit_length() - 1};", f"and.b32 {remainder}, {number}, {by - 1};"]
