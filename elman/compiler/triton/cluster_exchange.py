"""Values of all units by post: each program sends its own, 16 bytes at a time, into the shared memory of all
neighbours, and hears at a barrier of its own that all have come. Nobody meets, and nobody reads the memory that all
processors see.

A value's box has two halves that steps use in turn. Nobody writes into one that is still read: all that can be heard is
heard before anything is sent, so who sends for step t + 2 has heard what this program sent for step t + 1, and that was
sent when all its threads had read what is of step t. That holds for a value of the step at hand as for a state.
"""

from typing import NamedTuple

from elman.compiler.triton.spin_loads import PATIENT, ended, patient

LETTER = 16  # bytes that a thread sends at once
BARRIER = 8  # bytes
LINE = 128  # bytes that shared memory moves at once
NAP = 1000  # nanoseconds that a thread may sleep before it looks whether others gave up
OFTEN = 64  # naps between two looks
SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"


class Post(NamedTuple):
    """For some values of each step. The box of each has two halves with a block of rows from every program; then come
    all barriers. A program puts its own block together in its own box and sends it from there, to itself too, where
    nothing changes: so all barriers count alike."""

    rows: int
    units: int
    programs: int
    itemsize: int
    threads: int
    values: int

    @property
    def row(self) -> int:
        """Bytes of the units of one program."""
        return self.units * self.itemsize

    @property
    def block(self) -> int:
        return self.rows * self.row

    @property
    def half(self) -> int:
        return self.programs * self.block

    @property
    def size(self) -> int:
        return -(-self.values * 2 * (self.half + BARRIER) // LINE) * LINE

    def box(self, value: int, time: str) -> str:
        """The half for what was sent as number `time`: of a state, that before the first step is number 0."""
        return f"post + {value * 2 * self.half} + {time} % 2 * {self.half}"

    def own(self, value: int, time: str) -> str:
        return f"{self.box(value, time)} + slot * {self.block}"

    def barrier(self, value: int, time: str) -> str:
        return f"post + {self.values * 2 * self.half + value * 2 * BARRIER} + {time} % 2 * {BARRIER}"

    def within(self, row: str, unit: str) -> str:
        """Where a unit of all lies in a half."""
        program, own = f"({unit}) // {self.units}", f"({unit}) % {self.units}"
        return f"{program} * {self.block} + {row} * {self.row} + {own} * {self.itemsize}"

    def waiting(self, value: int, time: str) -> str:
        """A call that gives where a half lies, once all of it has come."""
        return f"heard({self.box(value, time)}, {self.barrier(value, time)}, {time} // 2 % 2, alarm, limit)"

    def arming(self, value: int, time: str) -> str:
        """A call that says how much will come. It comes before all that fetches something: an arrival waits for it."""
        return f"armed({self.barrier(value, time)})"

    def sending(self, value: int, time: str) -> str:
        """A call that sends a program's own block to all."""
        return f"sent({self.own(value, time)}, {self.barrier(value, time)}, slot)"

    def functions(self) -> str:
        return self._opened() + self._laid() + self._armed() + self._sent() + self._heard()

    def _opened(self) -> str:
        """All barriers, each for one thread that says how much will come."""
        lines = [".reg .pred one;", ".reg .b32 id;", "mov.u32 id, %tid.x;", "setp.eq.u32 one, id, 0;"]
        lines += [f"@one mbarrier.init.shared.b64 [$1+{n * BARRIER}], 1;" for n in range(2 * self.values)]
        lines += ["@one fence.mbarrier_init.release.cluster;", "mov.b32 $0, $1;"]
        return assembly("opened", ["barriers"], lines, ["=r", "r"], ["barriers"])

    def _laid(self) -> str:
        """Numbers into a program's own block. Nobody reads what was there: threads have met since, to send the last."""
        bits = 8 * self.itemsize
        lines = [".reg .pred one;", f".reg .b{bits} own;", f"setp.lt.u32 one, $2, {self.units};"]
        lines.append("cvt.u16.u32 own, $3;" if bits == 16 else "mov.b32 own, $3;")
        lines += [f"@one st.shared.b{bits} [$1], own;", "mov.b32 $0, $2;"]
        given = ["place", "column", f"value.to(tl.int{bits}, bitcast=True).to(tl.int32)"]
        return assembly("laid", ["place", "column", "value"], lines, ["=r", "r", "r", "r"], given)

    def _armed(self) -> str:
        """Some letters may come before it is said how many will: the arrival that is still missing keeps the barrier
        closed."""
        lines = [".reg .pred one;", ".reg .b32 id;", "mov.u32 id, %tid.x;", "setp.eq.u32 one, id, 0;"]
        lines += [f"@one mbarrier.arrive.expect_tx.shared.b64 _, [$1], {self.half};", "mov.b32 $0, $1;"]
        return assembly("armed", ["barrier"], lines, ["=r", "r"], ["barrier"])

    def _sent(self) -> str:
        """A block to all. Threads share letters and receivers evenly; each program begins with itself,
        so that not all write to the same one."""
        letters, programs, threads = self.block // LETTER, self.programs, self.threads
        crews = max(1, min(programs, threads // letters))  # threads that send the same letter
        lines = [".reg .pred one;", ".reg .b32 id, crew, letter, whom, far, gap, from, to, a, b, c, d;"]
        lines += ["mov.u32 id, %tid.x;", *_divided("crew", "letter", "id", letters), "sub.u32 gap, $2, $1;"]
        for first in range(0, letters, threads):
            # conditions that always hold would be branches all the same
            some = letters * crews < threads or first + threads > max(letters, threads)
            if first:
                lines.append(f"add.u32 letter, id, {first};")
            lines += [f"mad.lo.u32 from, letter, {LETTER}, $1;", f"setp.lt.u32 one, id, {letters * crews - first};"]
            lines.append(f"{'@one ' * some}ld.shared.v4.b32 {{a, b, c, d}}, [from];")
            for begin in range(0, programs, crews):
                over = begin + crews > programs
                if over:
                    lines.append(f"setp.lt.and.u32 one, crew, {programs - begin}, one;")
                lines += [f"add.u32 whom, $3, {begin};", *["add.u32 whom, whom, crew;"] * (crews > 1)]
                # without a sign, what is less than nothing is very much
                lines += [f"sub.u32 far, whom, {programs};", "min.u32 whom, whom, far;"]
                lines += ["mapa.shared::cluster.u32 far, $1, whom;", "add.u32 to, far, gap;"]
                lines += [f"mad.lo.u32 far, letter, {LETTER}, far;"]
                lines.append(f"{'@one ' * (some or over)}{SEND} [far], {{a, b, c, d}}, [to];")
        names = ["block", "barrier", "slot"]
        return assembly("sent", names, [*lines, "mov.b32 $0, $1;"], ["=r", *["r"] * 3], names)

    def _heard(self) -> str:
        """A half, once all its letters have come."""
        lines = [".reg .pred there;", *PATIENT, "again:"]
        # asked in the name of the cluster, it would empty the nearest cache, where nothing of this lies
        lines += [f"mbarrier.try_wait.parity.shared.b64 there, [$2], $3, {NAP};", "@there bra done;"]
        lines += [*patient("again", "$4", "$5", OFTEN), *ended("$4"), "mov.b32 $0, $1;"]
        names = ["box", "barrier", "phase", "alarm", "limit"]
        given = [*names[:3], "alarm.to(tl.int64)", "limit"]
        return assembly("heard", names, lines, ["=r", "r", "r", "r", "l", "r"], given)


def _divided(many: str, rest: str, number: str, by: int) -> list[str]:
    if by & (by - 1):
        return [f"div.u32 {many}, {number}, {by};", f"rem.u32 {rest}, {number}, {by};"]
    return [f"shr.u32 {many}, {number}, {by.bit_length() - 1};", f"and.b32 {rest}, {number}, {by - 1};"]


def assembly(
    name: str,
    names: list[str],
    lines: list[str],
    kinds: list[str],
    given: list[str],
    made: str = "tl.int32",
    pure: bool = False,
) -> str:
    """A function of some names that is assembly."""
    text = "{" + "\\n".join(lines) + "}"
    call = f'tl.inline_asm_elementwise("{text}", "{",".join(kinds)}", [{", ".join(given)}], dtype={made}'
    return f"\n\n@triton.jit\ndef {name}({', '.join(names)}):\n    return {call}, is_pure={pure}, pack=1)\n"
