"""How Triton writes what a unit program may hold, and the few functions that every kernel begins with."""

import os

from elman.compiler.interpreter import fold_constant
from elman.compiler.ir import StepIR

HEAD = '''"""Generated; changes are lost."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def logistic(x):
    return {logistic}


@triton.jit
def tanh(x):
    return {tanh}


@triton.jit
def expm1(x):
    near = x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0))))
    return tl.where(tl.abs(x) < 0.03, near, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    near = x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - x * 0.25)))
    return tl.where(tl.abs(x) < 0.03, near, tl.log(1.0 + x))


@triton.jit
def settled(x, like):
    """The same; else the compiler would multiply and add shares twice, once as totals want them laid out."""
    rounds = 0
    while rounds < 1:  # it repeats all else, but no loops
        x = {settled}
        rounds += 1
    return x


@triton.jit
def apart(x):
    """The same, for products that something is added to: else the compiler would begin with that, and round each term's
    sum to the digits that are left beside it."""
    return {apart}


@triton.jit
def rounded(x):
    """To the digits that tensor cores take of a float32; they would cut the rest off."""
    return {rounded}


@triton.jit
def fetched(load, place, unit, pair, owned, both):
    """Numbers that were given, or pairs of them."""
    if load.dtype.element_ty == tl.int32:
        return tl.load(load + place + pair, mask=both, other=0)
    else:
        return tl.load(load + place + unit, mask=owned, other=0.0)


@triton.jit
def parted(x, KIND: tl.constexpr):
    """Numbers of what was fetched, when they are needed: whoever takes pairs apart must wait for them."""
    if x.dtype == tl.int32:
        if KIND == tl.bfloat16:
            low, high = (x << 16).to(tl.float32, bitcast=True), (x & -65536).to(tl.float32, bitcast=True)
        else:
            low = x.to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
            high = (x >> 16).to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
        return tl.reshape(tl.join(low, high), (x.shape[0], 2 * x.shape[1]))
    else:
        return x.to(tl.float32)


@triton.jit
def arrived(counter):
    return {arrived}


@triton.jit
def wait(counter, target, limit, alarm):
    """Until all have arrived, or patience ends: then the alarm is set, and nobody is waited for any more."""
    spins = 0
    while (arrived(counter) < target) & (spins < limit):
        spins += 1
    tl.store(alarm, 1, mask=spins >= limit)
    tl.debug_barrier()
    return tl.where(spins < limit, limit, 0)

'''
# infinity and what is too small to be written whole end as they should, so nothing has to be scaled
LOGISTIC = (
    'tl.inline_asm_elementwise("{.reg .f32 a; mul.ftz.f32 a, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 a, a; '
    'add.ftz.f32 a, a, 0f3F800000; rcp.approx.ftz.f32 $0, a;}", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
)
PLAIN = "1.0 / (1.0 + tl.exp(-x))"  # the same, where assembly cannot be run
QUICK = "2.0 * logistic(2.0 * x) - 1.0"
SMALL = "x * (1.0 - x * x * (1.0 / 3.0 - x * x * (2.0 / 15.0 - x * x * (17.0 / 315.0 - x * x * (62.0 / 2835.0)))))"
EXACT = f"tl.where(tl.abs(x) < 0.25, {SMALL}, {QUICK})"
# where all digits of float32 are asked for: what torch calls, or in the interpreter, which cannot, rounded once
WHOLE_LOGISTIC = "tl.div_rn(1.0, 1.0 + libdevice.exp(-x))"
WHOLE_TANH = "libdevice.tanh(x)"
WIDE_LOGISTIC = "(1.0 / (1.0 + tl.exp(-x.to(tl.float64)))).to(tl.float32)"
WIDE_TANH = "(1.0 - 2.0 / (1.0 + tl.exp(2.0 * x.to(tl.float64)))).to(tl.float32)"
ACQUIRE = (
    'tl.inline_asm_elementwise("ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [counter], '
    "dtype=tl.int32, is_pure=False, pack=1)"
)
SETTLED = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [x, like], dtype=tl.float32, is_pure=False, pack=1)'
APART = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
ROUNDED = 'tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
ADD_NOTHING = 'tl.atomic_add(counter, 0, sem="acquire", scope="gpu")'

WRITTEN = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "abs": "tl.abs({})",
    "sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
    "maximum": "tl.maximum({}, {})",
    "minimum": "tl.minimum({}, {})",
    "where": "tl.where({}, {}, {})",
    "sigmoid": "logistic({})",
    "tanh": "tanh({})",
    "relu": "tl.maximum({}, 0.0)",
    "exp": "tl.exp({})",
    "expm1": "expm1({})",
    "log": "tl.log({})",
    "log1p": "log1p({})",
    "sqrt": "tl.sqrt({})",
    "rsqrt": "tl.rsqrt({})",
    "reciprocal": "1.0 / {}",
    "sin": "tl.sin({})",
    "cos": "tl.cos({})",
    "erf": "tl.erf({})",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "logical_and": "{} & {}",
    "logical_or": "{} | {}",
    "logical_not": "{} == 0",
}
WHOLE = {
    "div": "tl.div_rn({}, {})",
    "exp": "libdevice.exp({})",
    "expm1": "libdevice.expm1({})",
    "log": "libdevice.log({})",
    "log1p": "libdevice.log1p({})",
    "sqrt": "tl.sqrt_rn({})",
    "rsqrt": "tl.div_rn(1.0, tl.sqrt_rn({}))",
    "reciprocal": "tl.div_rn(1.0, {})",
}


def interpreted() -> bool:
    """Whether Triton runs kernels as plain Python, which needs no GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def words(itemsize: int, rounding: bool = False) -> dict[str, str]:
    """How operations are written. `itemsize`: bytes of the numbers that products take; `rounding`: to the digits that
    tensor cores take of a float32."""
    return WRITTEN | WHOLE if _exact(itemsize, rounding) and not interpreted() else WRITTEN


def head(itemsize: int, rounding: bool = False, poll: str = "load") -> str:
    """How the source of a kernel begins."""
    exact, here = _exact(itemsize, rounding), interpreted()
    return HEAD.format(
        logistic=(WIDE_LOGISTIC if here else WHOLE_LOGISTIC) if exact else PLAIN if here else LOGISTIC,
        tanh=(WIDE_TANH if here else WHOLE_TANH) if exact else EXACT if itemsize > 2 else QUICK,
        settled="x" if here else SETTLED,
        apart=APART if exact and not here else "x",
        rounded=ROUNDED if rounding and not here else "x",
        arrived=ACQUIRE if poll == "load" else ADD_NOTHING,
    )


def _exact(itemsize: int, rounding: bool) -> bool:
    return itemsize > 2 and not rounding


def literal(program: StepIR, index: int) -> str:
    """The number that a constant node is."""
    value = fold_constant(program, index)
    return repr(value) if abs(value) < 1e300 else f"float('{value}')"
