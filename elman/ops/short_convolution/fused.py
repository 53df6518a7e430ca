"""The short convolution in Triton: a program computes a tile (time, channels), all taps in one pass."""

import triton
import triton.language as tl


@triton.jit
def convolve(  # type: ignore[no-untyped-def]
    given,
    weight,
    bias,
    made,
    given_time,
    made_time,
    channels,
    TAPS: tl.constexpr,
    BACK: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    KIND: tl.constexpr,
):
    """Correlation of each position with those at and after it; with `BACK` (the input gradient), at and before it."""
    tiles = tl.cdiv(made_time, STEPS)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    t = tl.program_id(0) % tiles * STEPS + tl.arange(0, STEPS)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = channel < channels
    total = tl.zeros((STEPS, BLOCK), KIND)
    if bias is not None:
        total += tl.load(bias + channel, mask=valid, other=0.0).to(KIND)[None, :]
    for k in tl.static_range(TAPS):
        at = t - k if BACK else t + k
        real = ((at >= 0) & (at < given_time))[:, None] & valid[None, :]
        numbers = tl.load(given + (row * given_time + at)[:, None] * channels + channel[None, :], mask=real, other=0.0)
        tap = tl.load(weight + channel * TAPS + k, mask=valid, other=0.0).to(KIND)
        total += numbers.to(KIND) * tap[None, :]
    here = (row * made_time + t)[:, None] * channels + channel[None, :]
    tl.store(made + here, total, mask=(t < made_time)[:, None] & valid[None, :])


@triton.jit
def correlate(  # type: ignore[no-untyped-def]
    seen,
    given,
    sums,
    batch,
    time,
    channels,
    TAPS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partial gradients of taps and bias, `sums` (parts, taps + 1, channels), each of some tiles of time."""
    kind: tl.constexpr = sums.dtype.element_ty
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = channel < channels
    for_bias = tl.zeros((STEPS, BLOCK), kind)
    for_taps = ()
    for _ in tl.static_range(TAPS):
        for_taps = for_taps + (tl.zeros((STEPS, BLOCK), kind),)  # type: ignore[assignment]  # noqa: RUF005
    tiles = tl.cdiv(time, STEPS)
    for tile in range(tl.program_id(0), batch * tiles, tl.num_programs(0)):
        row = (tile // tiles).to(tl.int64)
        t = tile % tiles * STEPS + tl.arange(0, STEPS)
        real = (t < time)[:, None] & valid[None, :]
        numbers = tl.load(given + (row * time + t)[:, None] * channels + channel[None, :], mask=real, other=0.0)
        here = (row * (time + TAPS - 1) + t)[:, None] * channels + channel[None, :]
        longer = ()
        for k in tl.static_range(TAPS):
            inputs = tl.load(seen + here + k * channels, mask=real, other=0.0)
            longer = longer + (for_taps[k] + inputs.to(kind) * numbers.to(kind),)  # type: ignore[assignment]  # noqa: RUF005
        for_taps = longer
        for_bias += numbers.to(kind)
    own = sums + tl.program_id(0) * (TAPS + 1) * channels + channel
    for k in tl.static_range(TAPS):
        tl.store(own + k * channels, tl.sum(for_taps[k], 0), mask=valid)
    tl.store(own + TAPS * channels, tl.sum(for_bias, 0), mask=valid)
