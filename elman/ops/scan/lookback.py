"""The linear recurrence in Triton, in one pass: every number is read once and written once, however few channels.

A program takes the next stretch of `STEPS` steps of a block of channels: stretches in the order of time, so that those
before it have been taken too. It finds the stretch's effect, then waits for the state before it and tells the state
after it, all long before it has written its states; the stretches after it have loaded theirs meanwhile.
Where chains of stretches are few, passing states on would take longer than memory. There a state is told only every
`window` stretches; those between add up the effects of the ones before them.

What is told is looked at until it is there: words that no result has stand where nothing was told yet.
"""

import triton
import triton.language as tl

from elman.ops import sentinel

ABSENT = tl.constexpr(sentinel.ABSENT)
HEAD = tl.constexpr(32)  # words before what is told: a ticket, in a line of its own
TOGETHER = tl.constexpr(8)  # effects that are asked for at once


@triton.jit
def follow(keep, new, keep_later, new_later):  # type: ignore[no-untyped-def]
    """The effect of one stretch of time and of a later one, as one."""
    return keep * keep_later, keep_later * new + new_later


@triton.jit
def tell(place, value, valid):  # type: ignore[no-untyped-def]
    """Its bits, and another NaN for the one that means nothing."""
    kind: tl.constexpr = place.dtype.element_ty
    bits = value.to(kind, bitcast=True)
    tl.store(place, tl.where(bits == ABSENT, ABSENT - 1, bits), mask=valid)


@triton.jit
def hear(place, wanted, kind: tl.constexpr, alarm, limit):  # type: ignore[no-untyped-def]
    """What was told there, once all that is wanted is; when patience ends, the alarm is set, and nobody waits."""
    words = tl.load(place, mask=wanted, other=0, volatile=True)
    looks = 0
    while (tl.max((words == ABSENT).to(tl.int32)) > 0) & (looks < limit):
        words = tl.load(place, mask=wanted, other=0, volatile=True)
        # whether others gave up is asked now and then: all would ask the same word
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
def take(told, time, channels, rows, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The next stretch, of how many, its row, and channels with their mask; tickets count channels first, time last."""
    ticket = (tl.atomic_add(told, 1, sem="relaxed") + 1).to(tl.int32)
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
    told,
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
    """Fills `states` (and `products`) and `ended`, the last state; `told` is all absent: a ticket, then what is told.

    The compiler gives neighbouring channels to neighbouring lanes, and a lane holds all steps.
    """
    stretch, stretches, row, channel, valid = take(told, time, channels, rows, BLOCK, STEPS)
    w = (stretch * STEPS + tl.arange(0, STEPS))[:, None]
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
    keep, new = tl.associative_scan((a, b), 0, follow)
    share, added = final(keep), final(new)

    # told: a state for every window, and where a window is more than one stretch, the effect of every stretch
    all_rows = rows.to(tl.int64) * channels
    own = row * channels + channel
    states_told = told + HEAD + own
    shares_told = states_told + tl.cdiv(stretches, window) * all_rows
    added_told = shares_told + stretches * all_rows
    tell(shares_told + stretch * all_rows, share, valid & (window > 1))
    tell(added_told + stretch * all_rows, added, valid & (window > 1))
    kept, gained = tl.full((BLOCK,), 1.0, kind), tl.zeros((BLOCK,), kind)
    first = stretch // window * window
    begin = first
    while begin < stretch:
        before = (begin + tl.arange(0, TOGETHER))[:, None]
        wanted = (before < stretch) & valid[None, :]
        shares, _ = hear(shares_told[None, :] + before * all_rows, wanted, kind, alarm, limit)
        gains, _ = hear(added_told[None, :] + before * all_rows, wanted, kind, alarm, limit)
        shares, gains = tl.associative_scan((tl.where(wanted, shares, 1.0), gains), 0, follow)
        kept, gained = follow(kept, gained, final(shares), final(gains))
        begin += TOGETHER
    state = tl.load(start + own, mask=valid & (first == 0), other=0.0)
    at_window, looks = hear(states_told + (first // window - 1) * all_rows, valid & (first > 0), kind, alarm, limit)
    state = kept * (state + at_window) + gained
    after = share * state + added
    tell(states_told + first // window * all_rows, after, valid & (stretch + 1 == first + window))
    tl.store(ended + own, after, mask=valid & (stretch + 1 == stretches))

    # 0, which the compiler cannot know: else it would hold the places of all states in registers while it waits
    t += looks >> 31
    history = keep * state[None, :] + new
    here = t * channels + channel[None, :]
    tl.store(states + whole + here, history, mask=real)
    if PRODUCTS:
        tl.store(products + whole + here, history * p, mask=real)
