"""The linear recurrence in Triton as a single-pass scan with decoupled look-back (Merrill & Garland, 2016).

    h = keep · h + new is the effect of a step, and of a tile of `STEPS` steps; effects compose (`compose`)

    tile 0 ──state──> tile 1 ──state──> tile 2 ...        window = 1: each tile publishes the state after it
    tile 0 ..effect.. tile 1 ..effect.. tile 2 ──state──>  window = 3: effects inside a window, a state per window

A program takes the next tile of a block of channels by a ticket, in the order of time, so that earlier tiles are
already running. It loads its tile, computes the tile's effect, waits for the state before it, publishes the state
after it, and only then writes its states. So every element is read and written once. With few chains of tiles the
latency of passing states on would dominate; there, a larger window passes fewer states and composes more effects.

Published values are polled in the mailbox, which is filled with a sentinel (a NaN pattern that no result has).
"""

import triton
import triton.language as tl

from elman.ops import kernel_timeout

ABSENT = tl.constexpr(kernel_timeout.ABSENT)
HEAD = tl.constexpr(32)  # words before the published values: the ticket, in a cache line of its own
TOGETHER = tl.constexpr(8)  # effects polled at once


@triton.jit
def compose(keep, new, keep_later, new_later):  # type: ignore[no-untyped-def]
    """The effect of an earlier, then a later piece of time (the scan's associative operator)."""
    return keep * keep_later, keep_later * new + new_later


@triton.jit
def publish(place, value, valid):  # type: ignore[no-untyped-def]
    """Stores the bits of a value; a NaN equal to the sentinel becomes another NaN."""
    kind: tl.constexpr = place.dtype.element_ty
    bits = value.to(kind, bitcast=True)
    tl.store(place, tl.where(bits == ABSENT, ABSENT - 1, bits), mask=valid)


@triton.jit
def poll(place, wanted, kind: tl.constexpr, alarm, limit):  # type: ignore[no-untyped-def]
    """Polls until all wanted values are published; after `limit` polls sets the timeout flag `alarm` and gives up."""
    words = tl.load(place, mask=wanted, other=0, volatile=True)
    looks = 0
    while (tl.max((words == ABSENT).to(tl.int32)) > 0) & (looks < limit):
        words = tl.load(place, mask=wanted, other=0, volatile=True)
        # reads the flag rarely: all programs would load the same word
        given_up = tl.load(alarm, mask=looks % 256 == 255, other=0, volatile=True)
        looks = tl.where(given_up > 0, limit, looks + 1)
    tl.store(alarm, 1, mask=looks >= limit)
    return words.to(kind, bitcast=True), looks


@triton.jit
def final(values):  # type: ignore[no-untyped-def]
    """The last row."""
    last = tl.arange(0, values.shape[0]) == values.shape[0] - 1
    return tl.sum(tl.where(last[:, None], values, 0.0), 0)


@triton.jit
def take(mailbox, time, channels, rows, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The next tile, the number of tiles, row, channels and mask. Tickets order channels first, time last."""
    ticket = (tl.atomic_add(mailbox, 1, sem="relaxed") + 1).to(tl.int32)
    blocks = tl.cdiv(channels, BLOCK)
    channel = ticket % blocks * BLOCK + tl.arange(0, BLOCK)
    row = (ticket // blocks % rows).to(tl.int64)
    return ticket // (blocks * rows), tl.cdiv(time, STEPS), row, channel, channel < channels


NUMBERS = ["time", "channels", "rows", "limit", "decay_row", "decay_time", "inputs_row", "inputs_time"]


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["window"])
def lookback(  # type: ignore[no-untyped-def]
    decay,
    inputs,
    start,
    states,
    earlier,
    products,
    ended,
    mailbox,
    alarm,
    time,
    channels,
    rows,
    window,
    limit,
    decay_row,
    decay_time,
    decay_channel,
    inputs_row,
    inputs_time,
    inputs_channel,
    DOWN: tl.constexpr,
    LATE: tl.constexpr,
    PRODUCTS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Fills `states` (and `products`) and `ended`, the last state; `mailbox` is filled with the sentinel.

    The compiler assigns adjacent channels to adjacent lanes; a lane holds all steps of its channel.
    """
    tile, tiles, row, channel, valid = take(mailbox, time, channels, rows, BLOCK, STEPS)
    w = (tile * STEPS + tl.arange(0, STEPS))[:, None]
    t = time - 1 - w if DOWN else w
    back = -1 if DOWN else 1
    real = valid[None, :] & (w < time)
    kind: tl.constexpr = start.dtype.element_ty
    a_base, b_base, whole = decay + row * decay_row, inputs + row * inputs_row, row * time * channels
    a_place = (t - LATE * back) * decay_time + (channel * decay_channel)[None, :]
    a = tl.load(a_base + a_place, mask=real & (w >= LATE), other=1.0).to(kind)
    b = tl.load(b_base + (t * inputs_time + (channel * inputs_channel)[None, :]), mask=real, other=0.0).to(kind)
    if PRODUCTS:
        p_place = (t + back) * channels + channel[None, :]
        p = tl.load(earlier + whole + p_place, mask=real & (w + 1 < time), other=0.0).to(kind)
    keep, new = tl.associative_scan((a, b), 0, compose)
    share, added = final(keep), final(new)

    # mailbox: ticket | a state per window | if window > 1, the effect (share, added) of every tile
    all_rows = rows.to(tl.int64) * channels
    own = row * channels + channel
    states_slot = mailbox + HEAD + own
    shares_slot = states_slot + tl.cdiv(tiles, window) * all_rows
    added_slot = shares_slot + tiles * all_rows
    publish(shares_slot + tile * all_rows, share, valid & (window > 1))
    publish(added_slot + tile * all_rows, added, valid & (window > 1))
    kept, gained = tl.full((BLOCK,), 1.0, kind), tl.zeros((BLOCK,), kind)
    first = tile // window * window
    begin = first
    while begin < tile:
        before = (begin + tl.arange(0, TOGETHER))[:, None]
        wanted = (before < tile) & valid[None, :]
        shares, _ = poll(shares_slot[None, :] + before * all_rows, wanted, kind, alarm, limit)
        gains, _ = poll(added_slot[None, :] + before * all_rows, wanted, kind, alarm, limit)
        shares, gains = tl.associative_scan((tl.where(wanted, shares, 1.0), gains), 0, compose)
        kept, gained = compose(kept, gained, final(shares), final(gains))
        begin += TOGETHER
    state = tl.load(start + own, mask=valid & (first == 0), other=0.0)
    at_window, looks = poll(states_slot + (first // window - 1) * all_rows, valid & (first > 0), kind, alarm, limit)
    state = kept * (state + at_window) + gained
    after = share * state + added
    publish(states_slot + first // window * all_rows, after, valid & (tile + 1 == first + window))
    tl.store(ended + own, after, mask=valid & (tile + 1 == tiles))

    # looks >> 31 is 0, unknown to the compiler: else it would keep all store addresses in registers while it polls
    t += looks >> 31
    history = keep * state[None, :] + new
    here = t * channels + channel[None, :]
    tl.store(states + whole + here, history, mask=real)
    if PRODUCTS:
        tl.store(products + whole + here, history * p, mask=real)
