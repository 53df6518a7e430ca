"""What compiled recurrence kernels do on the chip. Run by test_kernels_compile.py; needs Triton, but no GPU."""

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import triton
from cell_cases import cell_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elman.compiler.ir import UNITS
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import SHARED, Partition, tuning
from elman.compiler.triton.recompute import WARPS
from elman.recurrence import compiled_triton

FEW_NUMBERS = 128  # bytes of a thread; of 768 units all is heard at once, for which 20 numbers lie in memory
POINTERS = {"counters": "*i32", "alarm": "*i32", "lengths": "*i32", "partials": "*fp32", "final": "*fp32"}


class Built(NamedTuple):
    ptx: str
    loop: str  # what is done at each step, before it became PTX
    shared: int
    stack: int


def built(
    name: str,
    size: int,
    way: str,
    part: Partition,
    tmp_path: Path,
    kind: str = "bf16",
    precision: str = "tf32",
    **settings: Any,
) -> Built:
    plan = compiled_triton.plan(cell_of(name, settings, hidden_size=size))
    kept = plan.stored(True) if way == "forward" else plan.adjoint.program.outputs
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    kernel = Kernel(plan.program(way), kept, part, dtype, way == "backward", precision)
    pairs = {f"load{n}": "*i32" for n, load in enumerate(kernel.emitted.loads) if kernel.pairing and load[2] == UNITS}
    types, known, pointers = {}, {}, POINTERS | pairs
    for place, argument in enumerate(kernel.run.arg_names):
        whole = argument in ("T", "B", "limit") or argument.endswith(("_t", "_r", "_p"))
        narrow = "*fp32" if argument.startswith(("initial", "sums")) else f"*{kind}"
        types[argument] = "i32" if whole else pointers.get(argument, narrow)
        if argument not in ("T", "B", "limit") and (size % 16 == 0 or not argument.startswith(("load", "initial"))):
            known[(place,)] = [["tt.divisibility", 16]]
    options = {"num_warps": part.warps, "num_stages": 1, "launch_cooperative_grid": True}
    return compiled(ASTSource(kernel.run, types, {}, known), options, tmp_path)


def compiled(source: ASTSource, options: dict[str, Any], tmp_path: Path) -> Built:
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    dump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    told = subprocess.run([dump, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    stack = re.search(r"STACK:(\d+)", told)
    assert stack is not None
    loop = re.search(r"^( *)[^\n]*scf\.for .*?^\1\}", made.asm["ttgir"], re.DOTALL | re.MULTILINE)
    return Built(made.asm["ptx"], loop[0] if loop else made.asm["ttgir"], made.metadata.shared, int(stack[1]))


def test_a_meeting_stands_between_stores_and_loads(tmp_path: Path) -> None:
    """All threads have stored before one says so, all wait before any loads, and loads go past the nearest cache.
    Planted: no barrier before the counter is raised; loads of any cache."""
    ptx = built("lstm", 256, "forward", Partition(16, 8, split=4), tmp_path).ptx
    raised = ptx.index("atom.global.gpu.release.add")
    assert re.search(r"st\.global\S* .*\n(?:(?!st\.global).*\n)*?.*bar\.sync", ptx[:raised])
    assert "st.global" not in ptx[ptx.rindex("bar.sync", 0, raised) : raised]
    seen = ptx.index("ld.acquire.gpu")
    assert raised < seen < ptx.index("bar.sync", seen)
    assert len(re.findall(r"ld\.relaxed\S*gpu|ld\.global\.cg", ptx)) >= 4


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_where_all_digits_are_asked_for_functions_are_not_the_quick_ones(way: str, tmp_path: Path) -> None:
    """And only there. Planted: those of tf32; numbers of 64 bits, of which many chips make few."""
    quick, exact = (
        built("layernorm-lstm", 64, way, Partition(16, 16, 4, 4), tmp_path, "fp32", precision).ptx
        for precision in ("tf32", "ieee")
    )
    for slow in ("div.rn.f32", "sqrt.rn.f32"):
        assert slow in exact
        assert slow not in quick
    assert "rsqrt.approx" in quick
    assert "rsqrt.approx" not in exact
    assert ".f64" not in quick + exact


@pytest.mark.parametrize(("name", "way"), [("rnn", "forward"), ("residual", "forward"), ("residual", "backward")])
def test_where_all_digits_are_asked_for_products_begin_with_nothing(name: str, way: str, tmp_path: Path) -> None:
    """Not with what is added to them afterwards. Planted: what is added to them."""
    loop = built(name, 64, way, Partition(16, 16, 4, 1), tmp_path, "fp32", "ieee").loop
    (begun,) = re.findall(r"tt\.dot %\w+, %\w+, (%\w+)", loop)
    assert begun.startswith("%cst")


@pytest.mark.parametrize(
    ("size", "part"), [(256, Partition(16, 8, 4, 4, poll="data")), (768, Partition(16, 32, 8, 8, poll="data"))]
)
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_what_is_looked_at_is_multiplied_where_it_arrives(size: int, part: Partition, way: str, tmp_path: Path) -> None:
    """A step waits as often as its tile says and never twice for the same; all that is heard stays in its lanes, so
    only shares of warps pass through shared memory. Planted: weights in another order of lanes; no loop of one round
    around the assembly, which then is repeated."""
    made = built("lstm", size, way, part, tmp_path)
    plan = compiled_triton.plan(cell_of("lstm", hidden_size=size))
    looks = [line for line in made.loop.split("\n") if "elementwise_inline_asm" in line and "ld.relaxed" in line]
    assert len(looks) == len(part.looks(plan.program(way), 2))
    assert "ttg.local_alloc" not in made.loop
    assert "atom.global" not in made.ptx
    assert made.stack == 0


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_memory_is_brought_near_before_it_is_looked_at(way: str, tmp_path: Path) -> None:
    """Each place once, by a thread of the program that will write there. Planted: nobody brings it; all that a program
    hears, which others bring too."""
    part = Partition(16, 16, 8, 8, poll="data")
    ptx = built("lstm", 512, way, part, tmp_path).ptx
    assert ptx.count("prefetch.global.L2") == {"forward": 1, "backward": 4}[way]
    assert "prefetch" not in built("lstm", 512, way, Partition(16, 16, 4, 4), tmp_path).ptx


@pytest.mark.parametrize("poll", ["data", "post"])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_words_of_a_look_are_operands_as_they_are(way: str, poll: str, tmp_path: Path) -> None:
    """Two and two, in their order, of one look: nothing is moved before it is multiplied. Planted: numbers of a
    register that are not its own axis."""
    ptx = built("lstm", 512, way, Partition(16, 16 if poll == "data" else 32, 8, 8, poll=poll), tmp_path).ptx
    looks = re.findall(r"ld\.(?:relaxed\.gpu\.global|shared)\.v4\.b32 \{([^}]*)\}", ptx)
    words = {word.strip(): (n, place) for n, look in enumerate(looks) for place, word in enumerate(look.split(","))}
    copies = dict(re.findall(r"mov\.b32\s+(%r\d+), (%r\d+);", ptx))
    operands = re.findall(r"mma\.sync\S+\s*\{[^}]*\},\s*\{[^}]*\},\s*\{([^}]*)\}", ptx)
    assert operands

    def origin(word: str) -> tuple[int, int]:
        while word in copies:
            word = copies[word]
        return words[word]

    for pair in operands:
        (one, first), (other, second) = (origin(word.strip()) for word in pair.split(","))
        assert one == other
        assert (first, second) in ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("size", "part", "left"),
    [
        (512, Partition(16, 16, 4, 4, poll="data", gripped=1), 0),
        (768, Partition(16, 32, 8, 8, poll="data", gripped=2), 1),
        (768, Partition(16, 24, 8, 8, poll="data", gripped=3), 0),
    ],
)
def test_weights_in_registers_are_loaded_once(size: int, part: Partition, left: int, tmp_path: Path) -> None:
    """As products take them; those for which there is no room stay in shared memory. Planted: the layout of a plain
    load, from which each step would bring them through shared memory."""
    made = built("lstm", size, "forward", part, tmp_path)
    program = compiled_triton.plan(cell_of("lstm", hidden_size=size)).step
    assert made.loop.count("ttg.local_load") == left
    assert made.shared <= part.shared(program, 2) < part.resident(program, 2) * 2 // 3 + 2**16
    assert made.stack <= FEW_NUMBERS


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_shares_in_the_mail_are_written_together_and_nobody_meets(way: str, tmp_path: Path) -> None:
    """Two totals of a stage in one store; no barrier, no fence. Planted: a store for each."""
    warps = 4 if way == "forward" else 8
    made = built("layernorm-lstm", 512, way, Partition(16, 32, warps, warps, poll="mail"), tmp_path)
    assert "barrier.cluster" not in made.loop
    assert "fence" not in made.loop
    assert len(re.findall(r"elementwise_inline_asm .*st\.shared::cluster\.v2\.b32", made.loop)) == 2
    assert "st.shared::cluster.b32" not in made.loop
    assert made.loop.count('"tt.reduce"') == 2
    assert made.stack <= FEW_NUMBERS


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_neighbours_meet_at_a_barrier_and_multiply_once(way: str, tmp_path: Path) -> None:
    """Three meetings of a step, no counters; sums of two stages, each made once. Planted: products and shares of warps
    that are not settled, which then are computed as pointwise code wants them and again as totals do."""
    warps = 4 if way == "forward" else 8
    made = built("layernorm-lstm", 512, way, Partition(16, 32, warps, warps, poll="near"), tmp_path)
    assert made.loop.count("barrier.cluster.arrive.release") == made.loop.count("barrier.cluster.wait.acquire") == 3
    assert made.loop.count('"tt.reduce"') == 2
    assert made.loop.count("tt.dot ") == (1 if way == "forward" else 4)
    assert len(re.findall(r"convert_layout .*f32.*f32", made.loop)) == 1  # shares of warps, to be added
    assert "atom.global" not in made.ptx
    assert "st.shared::cluster" in made.ptx
    assert made.stack <= FEW_NUMBERS


POSTED = [
    ("layernorm-lstm", "forward", Partition(16, 32, 8, 8, 256, poll="post", gripped=1), {}, 1, 1),
    ("layernorm-lstm", "backward", Partition(8, 32, 4, 4, poll="post"), {}, 4, 1),
    ("gru", "forward", Partition(8, 32, 4, 4, 128, poll="post", gripped=3), {"reset": "before"}, 2, 2),
    ("gru", "backward", Partition(16, 32, 8, 8, 256, poll="post", gripped=2), {"reset": "before"}, 3, 2),
]


@pytest.mark.parametrize(("name", "way", "part", "settings", "values", "stages"), POSTED, ids=str)
def test_what_comes_by_post_is_read_where_it_is_sent(
    name: str, way: str, part: Partition, settings: Any, values: int, stages: int, tmp_path: Path
) -> None:
    """Each value is waited for once a step, and sent by each thread as often as even shares ask for; threads wait for
    each other once a stage; nobody meets, or looks at what all see. Planted: a wait for each piece; a meeting after
    each sending; a barrier of threads for each value; looks at history; boxes that nobody counts; words sent alone."""
    made = built(name, 512, way, part, tmp_path, **settings)
    program = compiled_triton.plan(cell_of(name, settings, hidden_size=512)).program(way)
    assert made.loop.count("mbarrier.try_wait") == made.loop.count("mbarrier.arrive.expect_tx") == values
    share = part.rows * part.units * 2 // 16 * 16 // (32 * part.warps)  # letters, programs, threads
    assert len(re.findall(r"st\.async\S*complete_tx::bytes\.v4\.b32", made.loop)) == values * share
    assert made.loop.count("gpu.barrier") == stages
    looks = part.rows * 512 * 2 // 16 // (32 * part.warps)
    assert made.loop.count("ld.shared.v4.b32") == values * (looks + 1)  # and one of its own
    assert "barrier.cluster" not in made.loop
    assert "ld.relaxed.gpu.global.v4" not in made.ptx
    assert "fence" not in made.loop
    boxes = values * 2 * part.rows * 512 * 2
    assert made.shared + boxes < part.shared(program, 2) <= SHARED
    assert made.stack <= FEW_NUMBERS


@pytest.mark.parametrize(("name", "way", "part", "settings", "values", "stages"), POSTED, ids=str)
def test_nobody_who_waits_for_letters_waits_for_what_is_given(
    name: str, way: str, part: Partition, settings: Any, values: int, stages: int, tmp_path: Path
) -> None:
    """A barrier is told what will come before the sending, since that waits for all that was loaded; pairs are loaded
    as one number, which nothing takes apart before it is needed; one prefetch brings all of them near. Planted:
    told by who waits; numbers by themselves; each thread brings its own."""
    loop = built(name, 512, way, part, tmp_path, **settings).loop
    told = re.findall(r"mbarrier\.arrive.*?gpu\.barrier", loop, re.DOTALL)
    assert len(told) == stages
    assert not any("try_wait" in text or "tt.load" in text for text in told)
    loads = re.findall(r"tt\.load .*?tensor<(\d+)x(\d+)x!tt\.ptr<(\w+)>", loop)
    assert loads
    assert set(loads) == {(str(part.rows), str(part.units // 2), "i32")}
    assert loop.count("prefetch.global.L2") == 1
    assert loop.rindex("tt.load") < loop.index("prefetch.global.L2")


def test_tensor_cores_take_weights_from_shared_memory(tmp_path: Path) -> None:
    made = built("lstm", 768, "forward", Partition(16, 32, 4, chunk=256, turned=True), tmp_path)
    assert "wgmma.mma_async" in made.ptx
    assert "ttg.local_load" not in made.loop
    assert made.stack == 0


CHOSEN = [("lstm", 64, 256, "bf16"), ("lstm", 64, 768, "bf16"), ("lstm", 20, 650, "bf16"), ("gru", 64, 512, "bf16")]
CHOSEN += [("lstm", 64, 512, "bf16"), ("layernorm-lstm", 64, 512, "bf16"), ("lstm", 64, 256, "fp32")]
CHOSEN += [("lstm", 32, 1024, "fp32"), ("lstm", 20, 1150, "bf16")]


@pytest.mark.parametrize(("name", "batch", "size", "kind"), [*CHOSEN, ("layernorm-lstm", 64, 256, "fp32")], ids=str)
def test_what_is_chosen_fits_on_the_chip(name: str, batch: int, size: int, kind: str, tmp_path: Path) -> None:
    """Planted: a copy of all gates for each layout that totals want (4 kB of a thread's numbers in memory); many looks
    of float32 after which there are more (2.6 kB)."""
    plan = compiled_triton.plan(cell_of(name, hidden_size=size))
    itemsize = 2 if kind == "bf16" else 4
    for way in ("forward", "backward"):
        part = tuning(plan.program(way), batch, itemsize, 132)[0]
        made = built(name, size, way, part, tmp_path, kind)
        assert made.shared <= part.shared(plan.program(way), itemsize)
        assert made.stack <= FEW_NUMBERS


@pytest.mark.parametrize("part", [Partition(16, 8, 4, 4, poll="data"), Partition(16, 8, split=4)])
def test_float32_is_rounded_to_the_digits_that_tensor_cores_take(part: Partition, tmp_path: Path) -> None:
    """Else they cut the rest off, and errors all point to zero. Planted: no rounding of weights, of what is heard."""
    made = built("lstm", 256, "forward", part, tmp_path, kind="fp32")
    weights = made.ptx.index("cvt.rna.tf32")
    assert made.ptx.count("cvt.rna.tf32") > made.loop.count("tt.dot") > 0
    assert weights < made.ptx.index("mma.sync")
    assert "cvt.rna.tf32" in made.loop


@pytest.mark.parametrize("size", [512, 650])
def test_what_backward_needs_of_a_step_is_filled_in_at_once(size: int, tmp_path: Path) -> None:
    """Each value is read once, 16 bytes at a time where rows allow it, and stays in registers. Planted: a program for
    each row, with two bytes for a thread."""
    plan = compiled_triton.plan(cell_of("layernorm-lstm", hidden_size=size))
    assert {plan.step.nodes[index].op for index in plan.recall.filled} == {"sum"}
    filling = plan.recall.filling(2)
    run = filling.run
    types = {name: "*bf16" if name.startswith("g") else "*fp32" for name in run.arg_names}
    types |= {name: "i32" for name in run.arg_names if name in ("count", "time") or name.endswith(("_b", "_t"))}
    known = {(n,): [["tt.divisibility", 16]] for n, name in enumerate(run.arg_names) if name not in ("count", "time")}
    made = compiled(ASTSource(run, types, {}, known if size % 16 == 0 else {}), {"num_warps": WARPS}, tmp_path)
    assert made.stack == 0
    assert len(filling.given) == 5  # products and the memory
    if size % 16 == 0:
        assert len(re.findall(r"ld\.global\.v4\.b32", made.ptx)) >= 5 * filling.rows * size // (8 * 32 * WARPS)
