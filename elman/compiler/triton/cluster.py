"""Programs that are neighbours: a cluster of processors that meet at a barrier of their own, where nobody can wait in
vain, and write their shares of totals into each other's shared memory.

What is written lies in a mailbox at the end of each program's shared memory. It has two halves that steps use in turn:
whoever writes into a half has met the others since they read it. Numbers of all units stay in the memory that all
processors see, since into sixteen mailboxes they would take longer, unless they come by post.
"""

import ctypes
from typing import Any, NamedTuple

from elman.compiler.triton.cluster_exchange import LINE, Post, assembly
from elman.compiler.triton.spin_loads import PATIENT, ended, patient

MOST = 8  # programs of a cluster on every GPU that has clusters
LARGE = 16  # on Hopper, when asked for
AT_ONCE = 32  # shares that a thread reads before the first is added
FREE = 48 * 1024  # bytes of shared memory that need no asking
DYNAMIC = 8  # what the driver calls the most shared memory that a launch may ask for

FUNCTIONS = """
@triton.jit
def mailbox(x):
    return tl.inline_asm_elementwise(
        "{{.reg .b32 size; mov.u32 size, %dynamic_smem_size; mov.u32 $0, global_smem; "
        "add.u32 $0, $0, size; sub.u32 $0, $0, {size};}}",
        "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def arrive(x):
    return tl.inline_asm_elementwise(
        "barrier.cluster.arrive.release.aligned; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def depart(x):
    return tl.inline_asm_elementwise(
        "barrier.cluster.wait.acquire.aligned; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def passed(x):
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)
"""


class Mailbox(NamedTuple):
    """For shares of totals of some rows. `stages`: how many totals are made at once, stage by stage."""

    rows: int
    programs: int
    stages: tuple[int, ...]
    looking: bool = False
    """Whether shares are looked at until they are there."""
    post: Post | None = None
    """For values of all units, behind the shares."""

    @property
    def half(self) -> int:
        """Bytes."""
        return -(-sum(self.rows * self.stride(count) for count in self.stages) // LINE) * LINE

    @property
    def size(self) -> int:
        return 2 * self.half + (self.post.size if self.post else 0)

    def stride(self, count: int) -> int:
        """Bytes from one row to the next; what pads it lets rows be read side by side."""
        return -(-self.programs * _room(count) // 4) * 16 + 16

    def slot(self, stage: int, half: str, program: str) -> str:
        """Where a program's shares of a stage's totals lie, side by side."""
        before = sum(self.rows * self.stride(count) for count in self.stages[:stage])
        each = _room(self.stages[stage]) * 4
        return f"{half} + {before} + local * {self.stride(self.stages[stage])} + {program} * {each}"

    def functions(self) -> str:
        found = FUNCTIONS.format(size=self.size)
        for count in sorted(set(self.stages)):
            found += self._tell(count) + self._emptied(count) + self._told(count)
        return found + (self.post.functions() if self.post else "")

    def _tell(self, count: int) -> str:
        """Shares into the mailbox of each program, by a lane for each."""
        words = [f"w{number}" for number in range(count)]
        lines = [".reg .pred one;", ".reg .b32 far;", f"setp.lt.u32 one, $2, {self.programs};"]
        lines.append("mapa.shared::cluster.u32 far, $1, $2;")
        for first, many in _vectors(count):
            lines.append(
                f"@one st.shared::cluster{_together('far', first, [f'${3 + first + n}' for n in range(many)])}"
            )
        kinds = ["=r", *["r"] * (2 + count)]
        given = ["place", "whom", *(f"{word}.to(tl.int32, bitcast=True)" for word in words)]
        return assembly(f"tell{count}", ["place", "whom", *words], [*lines, "mov.b32 $0, $2;"], kinds, given)

    def _emptied(self, count: int) -> str:
        """Where shares are looked at they are missing before."""
        lines = [".reg .pred one;", f"setp.lt.u32 one, $2, {self.programs};"]
        for first, many in _vectors(count):
            lines.append(f"@one st.shared{_together('$1', first, ['-1'] * many)}")
        return assembly(
            f"emptied{count}", ["place", "whom"], [*lines, "mov.b32 $0, $2;"], ["=r", "r", "r"], ["place", "whom"]
        )

    def _told(self, count: int) -> str:
        """The sums of all programs' shares; if they are looked at, once nothing is missing."""
        room = _room(count)
        some = max(4 // room, AT_ONCE // room)
        lines = [f".reg .b32 {', '.join(f'w{n}' for n in range(some * room))};", ".reg .pred absent;"]
        lines += [".reg .b32 most;", *PATIENT]
        place, alarm, limit = (f"${count + n}" for n in range(3))
        load = "ld.volatile.shared" if self.looking else "ld.shared"
        for begin in range(0, self.programs, some):
            programs = range(min(some, self.programs - begin))
            lines.append(f"again{begin}:")
            for first in range(0, len(programs) * room, 4):
                words = ", ".join(f"w{first + n}" for n in range(4))
                lines.append(f"{load}.v4.b32 {{{words}}}, [{place}+{(begin * room + first) * 4}];")
            taken = [[f"w{one * room + number}" for one in programs] for number in range(count)]
            if self.looking:
                lines += ["mov.u32 most, 0;", *(f"max.u32 most, most, {word};" for own in taken for word in own)]
                lines += ["setp.eq.u32 absent, most, -1;", "vote.sync.any.pred absent, absent, 0xffffffff;"]
                lines.append(f"@!absent bra here{begin};")
                lines += [*patient(f"again{begin}", alarm, limit, 1024), f"here{begin}:"]
            for number, own in enumerate(taken):
                lines += _summed(own)
                lines.append(
                    f"{'add.f32' if begin else 'mov.b32'} ${number}, {f'${number}, ' if begin else ''}{own[0]};"
                )
        if self.looking:
            lines += ["bra done;", *ended(alarm)]
        kinds = [*["=&r"] * count, "r", "l", "r"]
        made = f"({', '.join(['tl.float32'] * count)})" if count > 1 else "tl.float32"
        given = ["place", "alarm.to(tl.int64)", "limit"]
        return assembly(f"told{count}", ["place", "alarm", "limit"], lines, kinds, given, made, pure=True)


def _room(count: int) -> int:
    """Numbers that a program's shares take, so that vectors begin where they may."""
    return 1 << (count - 1).bit_length()


def _vectors(count: int) -> list[tuple[int, int]]:
    """So many numbers in vectors of four, two and one: first, and how many."""
    found, first = [], 0
    while first < count:
        many = 4 if count - first >= 4 else 2 if count - first >= 2 else 1
        found.append((first, many))
        first += many
    return found


def _together(place: str, first: int, words: list[str]) -> str:
    """The end of an instruction that stores numbers side by side."""
    if len(words) == 1:
        return f".b32 [{place}+{first * 4}], {words[0]};"
    return f".v{len(words)}.b32 [{place}+{first * 4}], {{{', '.join(words)}}};"


def _summed(words: list[str]) -> list[str]:
    """Assembly: the sum in the first of them, by halves, so that few additions wait for another."""
    lines, left = [], list(words)
    while len(left) > 1:
        lines += [f"add.f32 {one}, {one}, {other};" for one, other in zip(left[::2], left[1::2], strict=False)]
        left = left[::2]
    return lines


def clustered(compiled: Any, programs: int, mail: Mailbox) -> Any:
    """A compiled kernel that is launched in clusters, with a mailbox behind the shared memory that it knows of.

    Triton has clusters for single programs that are spread over processors; here each processor has a program of its
    own, so only the launch is told. The grid is counted in clusters.
    """
    compiled._init_handles()
    shared = compiled.metadata.shared
    whole = -(-shared // LINE) * LINE + mail.size
    if shared <= FREE < whole:
        failed = ctypes.CDLL("libcuda.so.1").cuFuncSetAttribute(ctypes.c_void_p(compiled.function), DYNAMIC, whole)
        if failed:
            raise RuntimeError(f"no {whole} bytes of shared memory for a program (CUDA error {failed})")
    compiled.packed_metadata = compiled.metadata.num_warps, programs, whole
    return compiled
