"""Handwritten kernels compile for a Hopper GPU, also without one: the interpreter accepts what the compiler rejects."""

from importlib.util import find_spec

import pytest
from processes import run_python

PROGRAM = """
import itertools
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from elman.ops import softmax_gradient_kernel
from elman.ops.scan import kernel, lookback
from elman.ops.selective import fused, kernel as selective
from elman.ops import short_convolution as short
from elman.ops.short_convolution import fused as convolution

INTEGERS = "time channels size tiles gate_time batch steps segments rows window limit"
INTEGERS += " decay_row decay_time inputs_row inputs_time given_time made_time vocab stride"
NARROW = "decay inputs x delta write read gate values vectors seen given made scores"
WORDS = {"mailbox": "i32", "alarm": "i32", "targets": "i64"}

def build(function, constants, kind, warps):
    types = {}
    for name in function.arg_names:
        own = kind if name in NARROW.split() else WORDS.get(name, "fp32")
        types[name] = "constexpr" if name in constants else "i32" if name in INTEGERS.split() else "*" + own
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if types[name].startswith("*")}
    source = ASTSource(function, types, constants, aligned)
    options = {"num_warps": warps}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm
    assert made["cubin"]
    print(function.__name__, constants)
    return made["ptx"]

SIDE_BY_SIDE = {"decay_channel": 1, "inputs_channel": 1}
for plan, late, window in ((kernel.PLAN, 0, 1), (kernel.PLAN, 0, 8), (kernel.BACK, 1, 1), (kernel.BACK, 1, 8)):
    flags = {"DOWN": bool(late), "LATE": late, "PRODUCTS": bool(late), **({"window": 1} if window == 1 else {})}
    absent = {} if late else {"earlier": None, "products": None}
    sizes = {"BLOCK": plan.block, "STEPS": plan.steps, **SIDE_BY_SIDE}
    ptx = build(lookback.lookback, {**absent, **flags, **sizes}, "fp32", plan.warps)
    assert plan.warps > 1 or "shfl" not in ptx  # every lane holds all steps of its channel
    assert "ld.volatile.global" in ptx
    assert ptx.count("ld.global") >= (2 + late) * plan.steps  # all steps at once
for function, gated in itertools.product((fused.fold, fused.forward, fused.backward), (True, False)):
    optional = {"skip", "gate", "for_skip", "for_gate"} & set(function.arg_names)
    absent = {} if gated else dict.fromkeys(optional)
    sizes = {"channels": 1536, "gate_time": 3072, "size": 16, "SIZE": 16, "DOWN": gated}
    sizes |= {"STEPS": selective.PLAN.steps, "BLOCK": selective.PLAN.block}
    sizes = {name: sizes[name] for name in function.arg_names if name in sizes}
    ptx = build(function, {**absent, **sizes}, "fp32" if gated else "bf16", selective.PLAN.warps)
    if function is not fused.backward:  # lanes that share a channel exchange numbers by themselves
        assert "ld.shared" not in ptx
build(softmax_gradient_kernel.errors, {"BLOCK": softmax_gradient_kernel.BLOCK}, "bf16", softmax_gradient_kernel.WARPS)
sizes = {"TAPS": 4, "STEPS": short.PLAN.steps, "BLOCK": short.PLAN.block}
build(convolution.correlate, sizes, "bf16", short.PLAN.warps)
for back in (False, True):
    absent = {"bias": None} if back else {}
    flags = {"BACK": back, "KIND": triton.language.float32}
    build(convolution.convolve, {**absent, **sizes, **flags}, "bf16", short.PLAN.warps)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="kernels are written in Triton")
def test_every_kernel_compiles() -> None:
    done = run_python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 14
