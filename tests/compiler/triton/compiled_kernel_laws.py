"""PTX and resources of kernels compiled for a Hopper GPU. Run by test_generated_kernels.py; needs no GPU."""

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
from elman.compiler.triton.partition import Partition, SyncMode
from elman.compiler.triton.saved_for_backward import WARPS
from elman.compiler.triton.search import SHARED, choose_partition
from elman.recurrence import compiled_triton

FEW_SPILLS = 128  # bytes of stack per thread; with 768 units all loads are in flight at once, and 20 registers spill
POINTERS = {"counters": "*i32", "timeout_flag": "*i32", "lengths": "*i32", "partial_sums": "*fp32", "final": "*fp32"}


class Built(NamedTuple):
    ptx: str
    loop: str  # TTGIR of the loop over steps
    shared: int
    stack: int


def compile_kernel(
    name: str,
    size: int,
    way: str,
    part: Partition,
    tmp_path: Path,
    kind: str = "bf16",
    precision: str = "tf32",
    bidirectional: bool = False,
    **settings: Any,
) -> Built:
    compiled = compiled_triton.compiled_cell(cell_of(name, settings, hidden_size=size))
    kept = compiled.stored(True) if way == "forward" else compiled.adjoint.program.outputs
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    kernel = Kernel(compiled.program(way), kept, part, dtype, way == "backward", precision, bidirectional)
    pairs = {
        f"load{n}": "*i32" for n, load in enumerate(kernel.builder.loads) if kernel.packs_pairs and load[2] == UNITS
    }
    types, known, pointers = {}, {}, POINTERS | pairs
    for place, argument in enumerate(kernel.run.arg_names):
        whole = argument in ("T", "B", "max_spins") or argument.endswith(("_t", "_r", "_n", "_d"))
        narrow = "*fp32" if argument.startswith(("initial", "sums")) else f"*{kind}"
        types[argument] = "i32" if whole else pointers.get(argument, narrow)
        if argument not in ("T", "B", "max_spins") and (size % 16 == 0 or not argument.startswith(("load", "initial"))):
            known[(place,)] = [["tt.divisibility", 16]]
    options = {"num_warps": part.warps, "num_stages": 1, "launch_cooperative_grid": True}
    return compile_source(ASTSource(kernel.run, types, {}, known), options, tmp_path)


def compile_source(source: ASTSource, options: dict[str, Any], tmp_path: Path) -> Built:
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    dump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    told = subprocess.run([dump, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    stack = re.search(r"STACK:(\d+)", told)
    assert stack is not None
    loop = re.search(r"^( *)[^\n]*scf\.for .*?^\1\}", made.asm["ttgir"], re.DOTALL | re.MULTILINE)
    return Built(made.asm["ptx"], loop[0] if loop else made.asm["ttgir"], made.metadata.shared, int(stack[1]))


def test_stores_precede_the_counter_barrier_and_loads_follow_it(tmp_path: Path) -> None:
    """All threads have stored before one raises the counter, all wait before any loads, and loads bypass L1. Seen to
    fail without the barrier of threads, and with plain loads."""
    ptx = compile_kernel("lstm", 256, "forward", Partition(16, 8, split_k=4), tmp_path).ptx
    raised = ptx.index("atom.global.gpu.release.add")
    assert re.search(r"st\.global\S* .*\n(?:(?!st\.global).*\n)*?.*bar\.sync", ptx[:raised])
    assert "st.global" not in ptx[ptx.rindex("bar.sync", 0, raised) : raised]
    seen = ptx.index("ld.acquire.gpu")
    assert raised < seen < ptx.index("bar.sync", seen)
    assert len(re.findall(r"ld\.relaxed\S*gpu|ld\.global\.cg", ptx)) >= 4


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_full_float32_precision_uses_accurate_functions(way: str, tmp_path: Path) -> None:
    """And TF32 does not. Catches the functions of TF32, and with float64, which many GPUs compute slowly."""
    quick, exact = (
        compile_kernel("layernorm-lstm", 64, way, Partition(16, 16, 4, 4), tmp_path, "fp32", precision).ptx
        for precision in ("tf32", "ieee")
    )
    for slow in ("div.rn.f32", "sqrt.rn.f32"):
        assert slow in exact
        assert slow not in quick
    assert "rsqrt.approx" in quick
    assert "rsqrt.approx" not in exact
    assert ".f64" not in quick + exact


@pytest.mark.parametrize(("name", "way"), [("rnn", "forward"), ("residual", "forward"), ("residual", "backward")])
def test_full_float32_precision_accumulates_from_zero(name: str, way: str, tmp_path: Path) -> None:
    """Seen to fail where the compiler started the accumulator at the addend."""
    loop = compile_kernel(name, 64, way, Partition(16, 16, 4, 1), tmp_path, "fp32", "ieee").loop
    (begun,) = re.findall(r"tt\.dot %\w+, %\w+, (%\w+)", loop)
    assert begun.startswith("%cst")


@pytest.mark.parametrize(
    ("size", "part"),
    [(256, Partition(16, 8, 4, 4, sync=SyncMode.SENTINEL)), (768, Partition(16, 32, 8, 8, sync=SyncMode.SENTINEL))],
)
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_polled_values_are_mma_operands_of_the_lanes_that_load_them(
    size: int, part: Partition, way: str, tmp_path: Path
) -> None:
    """As many polling loads per step as `waits` says; shared memory carries sums over warps only. Seen to fail with
    weights in another lane order, and without the loop of one round around the assembly, which then is duplicated."""
    made = compile_kernel("lstm", size, way, part, tmp_path)
    compiled = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=size))
    polls = [line for line in made.loop.split("\n") if "elementwise_inline_asm" in line and "ld.relaxed" in line]
    assert len(polls) == len(part.waits(compiled.program(way), 2))
    assert "ttg.local_alloc" not in made.loop
    assert "atom.global" not in made.ptx
    assert made.stack == 0


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_polled_memory_is_prefetched_into_l2(way: str, tmp_path: Path) -> None:
    """Each address once, by a thread of the program that will write it. Seen to fail without prefetches, and with
    prefetches of all that a program reads."""
    part = Partition(16, 16, 8, 8, sync=SyncMode.SENTINEL)
    ptx = compile_kernel("lstm", 512, way, part, tmp_path).ptx
    assert ptx.count("prefetch.global.L2") == {"forward": 1, "backward": 4}[way]
    assert "prefetch" not in compile_kernel("lstm", 512, way, Partition(16, 16, 4, 4), tmp_path).ptx


@pytest.mark.parametrize("sync", [SyncMode.SENTINEL, SyncMode.ST_ASYNC])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_registers_of_a_vector_load_are_mma_operands_as_they_are(way: str, sync: str, tmp_path: Path) -> None:
    """Pairs of registers of one load, in order, without moves. Seen to fail where elements of a register had no axis of
    their own."""
    ptx = compile_kernel(
        "lstm", 512, way, Partition(16, 16 if sync == SyncMode.SENTINEL else 32, 8, 8, sync=sync), tmp_path
    ).ptx
    loads = re.findall(r"ld\.(?:relaxed\.gpu\.global|shared)\.v4\.b32 \{([^}]*)\}", ptx)
    words = {word.strip(): (n, place) for n, load in enumerate(loads) for place, word in enumerate(load.split(","))}
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
        (512, Partition(16, 16, 4, 4, sync=SyncMode.SENTINEL, register_tiles=1), 0),
        (768, Partition(16, 32, 8, 8, sync=SyncMode.SENTINEL, register_tiles=2), 1),
        (768, Partition(16, 24, 8, 8, sync=SyncMode.SENTINEL, register_tiles=3), 0),
    ],
)
def test_weights_in_registers_are_loaded_once(size: int, part: Partition, left: int, tmp_path: Path) -> None:
    """In the operand layout; tiles beyond `register_tiles` stay in shared memory. Catches tl.load's layout,
    which each step converts through shared memory."""
    made = compile_kernel("lstm", size, "forward", part, tmp_path)
    program = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=size)).step
    assert made.loop.count("ttg.local_load") == left
    assert made.shared <= part.shared_bytes(program, 2) < part.weight_bytes(program, 2) * 2 // 3 + 2**16
    assert made.stack <= FEW_SPILLS


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_cluster_sentinel_stores_partial_sums_as_vectors_without_barriers(way: str, tmp_path: Path) -> None:
    """Two totals of a stage in one store; no cluster barrier, no fence. Catches a store for each."""
    warps = 4 if way == "forward" else 8
    made = compile_kernel(
        "layernorm-lstm", 512, way, Partition(16, 32, warps, warps, sync=SyncMode.CLUSTER_SENTINEL), tmp_path
    )
    assert "barrier.cluster" not in made.loop
    assert "fence" not in made.loop
    assert len(re.findall(r"elementwise_inline_asm .*st\.shared::cluster\.v2\.b32", made.loop)) == 2
    assert "st.shared::cluster.b32" not in made.loop
    assert made.loop.count('"tt.reduce"') == 2
    assert made.stack <= FEW_SPILLS


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_cluster_barrier_kernels_have_one_barrier_per_exchange_and_multiply_once(way: str, tmp_path: Path) -> None:
    """Three exchanges per step, no counter, sums of two stages. Seen to fail without `pin_layout`: dots and sums over
    warps were computed once in the layout of pointwise code and again in that of totals."""
    warps = 4 if way == "forward" else 8
    made = compile_kernel(
        "layernorm-lstm", 512, way, Partition(16, 32, warps, warps, sync=SyncMode.CLUSTER_BARRIER), tmp_path
    )
    assert made.loop.count("barrier.cluster.arrive.release") == made.loop.count("barrier.cluster.wait.acquire") == 3
    assert made.loop.count('"tt.reduce"') == 2
    assert made.loop.count("tt.dot ") == (1 if way == "forward" else 4)
    assert len(re.findall(r"convert_layout .*f32.*f32", made.loop)) == 1  # sums over warps
    assert "atom.global" not in made.ptx
    assert "st.shared::cluster" in made.ptx
    assert made.stack <= FEW_SPILLS


ST_ASYNC_KERNELS = [
    ("layernorm-lstm", "forward", Partition(16, 32, 8, 8, 256, sync=SyncMode.ST_ASYNC, register_tiles=1), {}, 1, 1),
    ("layernorm-lstm", "backward", Partition(8, 32, 4, 4, sync=SyncMode.ST_ASYNC), {}, 4, 1),
    (
        "gru",
        "forward",
        Partition(8, 32, 4, 4, 128, sync=SyncMode.ST_ASYNC, register_tiles=3),
        {"reset": "before"},
        2,
        2,
    ),
    (
        "gru",
        "backward",
        Partition(16, 32, 8, 8, 256, sync=SyncMode.ST_ASYNC, register_tiles=2),
        {"reset": "before"},
        3,
        2,
    ),
]


@pytest.mark.parametrize(("name", "way", "part", "settings", "values", "stages"), ST_ASYNC_KERNELS, ids=str)
def test_st_async_sends_and_waits_once_per_value(
    name: str, way: str, part: Partition, settings: Any, values: int, stages: int, tmp_path: Path
) -> None:
    """One mbarrier wait per value and step, packets divided evenly among threads, one barrier of threads per stage; no
    cluster barrier and no polls of global memory. Catches a wait per K tile, a cluster barrier per send, a
    barrier of threads per value, polls of history, buffers missing in `shared_bytes`, and packets of 4 bytes."""
    made = compile_kernel(name, 512, way, part, tmp_path, **settings)
    program = compiled_triton.compiled_cell(cell_of(name, settings, hidden_size=512)).program(way)
    assert made.loop.count("mbarrier.try_wait") == made.loop.count("mbarrier.arrive.expect_tx") == values
    packets = part.rows * part.units * 2 // 16 * 16 // (32 * part.warps)  # per thread: of a block, to 16 programs
    assert len(re.findall(r"st\.async\S*complete_tx::bytes\.v4\.b32", made.loop)) == values * packets
    assert made.loop.count("gpu.barrier") == stages
    loads = part.rows * 512 * 2 // 16 // (32 * part.warps)
    assert made.loop.count("ld.shared.v4.b32") == values * (loads + 1)  # and one of the own block, to send
    assert "barrier.cluster" not in made.loop
    assert "ld.relaxed.gpu.global.v4" not in made.ptx
    assert "fence" not in made.loop
    buffers = values * 2 * part.rows * 512 * 2
    assert made.shared + buffers < part.shared_bytes(program, 2) <= SHARED
    assert made.stack <= FEW_SPILLS


@pytest.mark.parametrize(("name", "way", "part", "settings", "values", "stages"), ST_ASYNC_KERNELS, ids=str)
def test_st_async_kernels_do_not_wait_for_step_inputs(
    name: str, way: str, part: Partition, settings: Any, values: int, stages: int, tmp_path: Path
) -> None:
    """mbarrier.arrive precedes the loads of inputs, since it waits for all issued loads; 16-bit inputs are loaded as
    int32 pairs and unpacked late; one prefetch covers all inputs. Catches the arrival at the wait, with
    single inputs, and with a prefetch per thread and input."""
    loop = compile_kernel(name, 512, way, part, tmp_path, **settings).loop
    arrivals = re.findall(r"mbarrier\.arrive.*?gpu\.barrier", loop, re.DOTALL)
    assert len(arrivals) == stages
    assert not any("try_wait" in text or "tt.load" in text for text in arrivals)
    loads = re.findall(r"tt\.load .*?tensor<(\d+)x(\d+)x!tt\.ptr<(\w+)>", loop)
    assert loads
    assert set(loads) == {(str(part.rows), str(part.units // 2), "i32")}
    assert loop.count("prefetch.global.L2") == 1
    assert loop.rindex("tt.load") < loop.index("prefetch.global.L2")


def test_wgmma_reads_weights_from_shared_memory(tmp_path: Path) -> None:
    made = compile_kernel("lstm", 768, "forward", Partition(16, 32, 4, tile_k=256, wgmma=True), tmp_path)
    assert "wgmma.mma_async" in made.ptx
    assert "ttg.local_load" not in made.loop
    assert made.stack == 0


CHOSEN = [("lstm", 64, 256, "bf16"), ("lstm", 64, 768, "bf16"), ("lstm", 20, 650, "bf16"), ("gru", 64, 512, "bf16")]
CHOSEN += [("lstm", 64, 512, "bf16"), ("layernorm-lstm", 64, 512, "bf16"), ("lstm", 64, 256, "fp32")]
CHOSEN += [("lstm", 32, 1024, "fp32"), ("lstm", 20, 1150, "bf16")]


@pytest.mark.parametrize(("name", "batch", "size", "kind"), [*CHOSEN, ("layernorm-lstm", 64, 256, "fp32")], ids=str)
def test_chosen_partitions_fit_and_do_not_spill(name: str, batch: int, size: int, kind: str, tmp_path: Path) -> None:
    """Catches copies of all gates for each layout that totals need (4 kB of spills per thread), and with many
    float32 loads in flight before another wait (2.6 kB)."""
    compiled = compiled_triton.compiled_cell(cell_of(name, hidden_size=size))
    itemsize = 2 if kind == "bf16" else 4
    for way in ("forward", "backward"):
        part = choose_partition(compiled.program(way), batch, itemsize, 132)
        assert part is not None
        made = compile_kernel(name, size, way, part, tmp_path, kind)
        assert made.shared <= part.shared_bytes(compiled.program(way), itemsize)
        assert made.stack <= FEW_SPILLS


@pytest.mark.parametrize("part", [Partition(16, 8, 4, 4, sync=SyncMode.SENTINEL), Partition(16, 8, split_k=4)])
def test_float32_operands_are_rounded_to_tf32(part: Partition, tmp_path: Path) -> None:
    """Tensor cores truncate, which biases results towards 0. Seen to fail for weights, and for exchanged values."""
    made = compile_kernel("lstm", 256, "forward", part, tmp_path, kind="fp32")
    weights = made.ptx.index("cvt.rna.tf32")
    assert made.ptx.count("cvt.rna.tf32") > made.loop.count("tt.dot") > 0
    assert weights < made.ptx.index("mma.sync")
    assert "cvt.rna.tf32" in made.loop


@pytest.mark.parametrize("size", [512, 650])
def test_the_recompute_kernel_reads_each_value_once(size: int, tmp_path: Path) -> None:
    """16 bytes at a time where rows are aligned, without spills. Catches one row per program, so two bytes
    per thread."""
    compiled = compiled_triton.compiled_cell(cell_of("layernorm-lstm", hidden_size=size))
    assert {compiled.step.nodes[index].op for index in compiled.save_plan.recomputed} == {"sum"}
    kernel = compiled.save_plan.recompute(2)
    run = kernel.run
    types = {name: "*bf16" if name.startswith("g") else "*fp32" for name in run.arg_names}
    types |= {name: "i32" for name in run.arg_names if name in ("count", "time") or name.endswith(("_b", "_t"))}
    known = {(n,): [["tt.divisibility", 16]] for n, name in enumerate(run.arg_names) if name not in ("count", "time")}
    made = compile_source(ASTSource(run, types, {}, known if size % 16 == 0 else {}), {"num_warps": WARPS}, tmp_path)
    assert made.stack == 0
    assert len(kernel.inputs) == 5  # products and the cell state
    if size % 16 == 0:
        assert len(re.findall(r"ld\.global\.v4\.b32", made.ptx)) >= 5 * kernel.rows * size // (8 * 32 * WARPS)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_bidirectional_kernels_load_as_wide_vectors_as_others(way: str, tmp_path: Path) -> None:
    """Vectors of four need pointers that the compiler knows to be aligned, in both directions."""
    part = Partition(16, 16, split_k=4, tile_k=64)
    one, both = (compile_kernel("lstm", 64, way, part, tmp_path, bidirectional=n).ptx for n in (False, True))
    loads = [set(re.findall(r"ld\.global\S*", ptx)) for ptx in (one, both)]
    assert any("v4" in load for load in loads[0])
    assert loads[0] == loads[1]
