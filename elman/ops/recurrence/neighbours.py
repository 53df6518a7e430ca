"""Programs that are neighbours: a cluster of processors that meet at a barrier of their own, where nobody can wait in
vain, and write their shares of totals into each other's shared memory.

What is written lies in a mailbox at the end of each program's shared memory. It has two halves that steps use in turn:
whoever writes into a half has met the others since they read it. Numbers of all units stay in the memory that all
processors see: into sixteen mailboxes they would take longer.
"""

import ctypes
from typing import Any, NamedTuple

MOST = 8  # programs of a cluster on every GPU that has clusters
LARGE = 16  # on Hopper, when asked for
LINE = 128  # bytes that shared memory moves at once
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
def tell(place, whom, word):
    return tl.inline_asm_elementwise(
        "{{.reg .b32 far; mapa.shared::cluster.u32 far, $1, $2; st.shared::cluster.b32 [far], $3; mov.b32 $0, $3;}}",
        "=r,r,r,r", [place, whom, word.to(tl.int32, bitcast=True)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def told(place):
    return tl.inline_asm_elementwise(
        "{{.reg .b32 a, b, c, d; mov.b32 $0, 0; {added}}}", "=&r,r", [place], dtype=tl.float32, is_pure=True, pack=1)
"""


class Mailbox(NamedTuple):
    """For shares of so many totals of some rows."""

    rows: int
    programs: int
    totals: int

    @property
    def half(self) -> int:
        """Bytes."""
        return -(-(self.totals * self.rows * self.stride * 4) // LINE) * LINE

    @property
    def stride(self) -> int:
        """Numbers from one row to the next: four are read at once."""
        return -(-self.programs // 4) * 4

    @property
    def size(self) -> int:
        return 2 * self.half

    def functions(self) -> str:
        lines = []
        for first in range(0, self.programs, 4):
            lines.append(f"ld.shared.v4.b32 {{a, b, c, d}}, [$1+{first * 4}];")
            lines += [f"add.f32 $0, $0, {name};" for name, _ in zip("abcd", range(first, self.programs), strict=False)]
        return FUNCTIONS.format(size=self.size, added=" ".join(lines))

    def share(self, number: int, program: str) -> str:
        """Where a program's share of a total lies, in the half of this step."""
        return f"half + (({number * self.rows} + local) * {self.stride} + {program}) * 4"


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
