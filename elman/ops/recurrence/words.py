"""How Triton writes what a unit program may hold, and the few functions that every kernel begins with."""

HEAD = '''"""Generated; changes are lost."""

import triton
import triton.language as tl


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
def rounded(x):
    """To the digits that tensor cores take of a float32; they would cut the rest off."""
    return {rounded}


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
QUICK = "2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0"
SMALL = "x * (1.0 - x * x * (1.0 / 3.0 - x * x * (2.0 / 15.0 - x * x * (17.0 / 315.0 - x * x * (62.0 / 2835.0)))))"
EXACT = f"tl.where(tl.abs(x) < 0.25, {SMALL}, {QUICK})"
ACQUIRE = (
    'tl.inline_asm_elementwise("ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [counter], '
    "dtype=tl.int32, is_pure=False, pack=1)"
)
SETTLED = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [x, like], dtype=tl.float32, is_pure=False, pack=1)'
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
    "sigmoid": "1.0 / (1.0 + tl.exp(-{}))",
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
