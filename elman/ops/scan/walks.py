"""The linear recurrence in Triton: s_w = a_w s_{w-1} + b_w for many channels at once, many steps at once.

A program walks over one segment of time for a block of channels of one row. `w` counts steps in the order of the walk:
up or down the time axis.
The gradient is the same walk the other way, where each state is multiplied by the decay of the step walked before
(`LATE`), and the product of each state with what is `earlier` in time is stored as well (`PRODUCTS`).
"""

import triton
import triton.language as tl


@triton.jit
def place(time, channels, steps, segments, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row, channels with their mask, first step, where the segment's state lies: programs count channels first."""
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    channel = program % blocks * BLOCK + tl.arange(0, BLOCK)
    row = (program // blocks // segments).to(tl.int64)
    segment = program // blocks % segments
    return row, channel, channel < channels, segment * steps, (row * segments + segment) * channels + channel


@triton.jit
def follow(keep, new, keep_later, new_later):  # type: ignore[no-untyped-def]
    """The effect of one stretch of time and of a later one, as one."""
    return keep * keep_later, keep_later * new + new_later


@triton.jit(do_not_specialize=["time", "channels", "steps", "decay_row", "decay_time", "inputs_row", "inputs_time"])
def tiles(  # type: ignore[no-untyped-def]
    decay,
    inputs,
    start,
    states,
    earlier,
    products,
    ended,
    kept,
    time,
    channels,
    steps,
    segments,
    decay_row,
    decay_time,
    decay_channel,
    inputs_row,
    inputs_time,
    inputs_channel,
    DOWN: tl.constexpr,
    LATE: tl.constexpr,
    FOLD: tl.constexpr,
    PRODUCTS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Fills `states` (and `products`), or where it is to `FOLD` only the effect of each segment: `ended` and `kept`.

    The compiler does not know where rows begin, so it gives neighbouring channels to neighbouring lanes, one each: of a
    warp and 32 channels every lane holds all steps of its own, and nothing changes hands.
    """
    row, channel, valid, first, own = place(time, channels, steps, segments, BLOCK)
    a_base = decay + row * decay_row + (channel * decay_channel)[None, :]
    b_base = inputs + row * inputs_row + (channel * inputs_channel)[None, :]
    whole = row * time * channels + channel[None, :]
    state = tl.load(start + own, mask=valid, other=0.0)
    kind: tl.constexpr = state.dtype
    share = tl.full((BLOCK,), 1.0, kind)
    last = (tl.arange(0, UNROLL) == UNROLL - 1)[:, None]
    for step in tl.range(first, min(first + steps, time), UNROLL, num_stages=DEPTH):
        w = (step + tl.arange(0, UNROLL))[:, None]
        t = time - 1 - w if DOWN else w
        real = valid[None, :] & (w < time)
        back = -1 if DOWN else 1
        a = tl.load(a_base + (t - LATE * back) * decay_time, mask=real & (w >= LATE), other=1.0).to(kind)
        b = tl.load(b_base + t * inputs_time, mask=real, other=0.0).to(kind)
        if PRODUCTS and not FOLD:
            p = tl.load(earlier + whole + (t + back) * channels, mask=real & (w + 1 < time), other=0.0).to(kind)
        keep, new = tl.associative_scan((a, b), 0, follow)
        history = keep * state[None, :] + new
        state = tl.sum(tl.where(last, history, 0.0), 0)
        if FOLD:
            share = share * tl.sum(tl.where(last, keep, 0.0), 0)
        else:
            tl.store(states + whole + t * channels, history, mask=real)
        if PRODUCTS and not FOLD:
            tl.store(products + whole + t * channels, history * p, mask=real)
    tl.store(ended + own, state, mask=valid)
    if FOLD:
        tl.store(kept + own, share, mask=valid)
