"""The selective scan in Triton: one kernel from step sizes to gated outputs, one for its gradient.

    time     |........|........|........|........|........|........|     tiles of STEPS steps
             |<-------- segment 0 ----->|<------- segment 1 ------>|     a program: one segment, row, block of channels
    starts   h0       h1       h2       h3       h4       h5             states saved for backward, one per tile

    state of a program: (BLOCK channels, SIZE), few lanes per channel, so that the sum over SIZE takes few shuffles

A program runs step by step over its segment; successive steps depend on each other by one multiply-add only, since
decays and inputs are computed ahead. Stores follow after STEPS steps, because Triton does not move loads across stores.
With few rows and channels, time is divided into segments: `fold` first computes the effect of all segments in parallel,
and each program of `forward` or `backward` begins with the composed effects of the segments before its own.

`rate` is in base 2: exp(Δ λ) = exp2(Δ · rate). With `DOWN`, `fold` folds the gradient, from the last step to the first.
"""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
VARIED = ["time", "tiles", "segments", "batch"]  # not specialised: one kernel for all lengths


@triton.jit
def place(rate, segments, channels: tl.constexpr, size: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row and segment of this program, its channels with mask, state indices, their offsets with mask, and rates;
    programs are ordered channels first."""
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    channel = program % blocks * BLOCK + tl.arange(0, BLOCK)
    valid = channel < channels
    n = tl.arange(0, SIZE)
    slot = channel[:, None] * size + n[None, :]
    held = valid[:, None] & (n < size)[None, :]
    speed = tl.load(rate + slot, mask=held, other=0.0)
    row = (program // blocks // segments).to(tl.int64)
    return row, program // blocks % segments, channel, valid, n, slot, held, speed


@triton.jit
def fetch(pointers, mask, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """A masked load. Zero behind the end: a step of size 0 does not change the state."""
    return tl.load(pointers, mask=mask, other=0.0).to(kind)


@triton.jit(do_not_specialize=VARIED)
def fold(  # type: ignore[no-untyped-def]
    delta,
    values,
    gate,
    vectors,
    rate,
    ended,
    totals,
    time,
    tiles,
    segments,
    channels: tl.constexpr,
    gate_time: tl.constexpr,
    size: tl.constexpr,
    DOWN: tl.constexpr,
    SIZE: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The effect of each segment on a state, or if `DOWN` on its gradient: the result from a zero state, `ended`
    (batch, segments, channels, size), and the sum of step sizes, `totals` (batch, segments, channels)."""
    row, segment, channel, valid, n, slot, held, speed = place(rate, segments, channels, size, SIZE, BLOCK)
    kind: tl.constexpr = speed.dtype
    state = tl.zeros((BLOCK, SIZE), kind)
    total = tl.zeros((BLOCK,), kind)
    each = tl.cdiv(tiles, segments)
    first = segment * each
    last = min(first + each, tiles)
    for count in range(first, last):
        tile = first + last - 1 - count if DOWN else count
        now = row * time + tile * STEPS
        here = now * channels + channel
        for i in tl.static_range(STEPS - 1 if DOWN else 0, -1 if DOWN else STEPS, -1 if DOWN else 1):
            real = tile * STEPS + i < time
            step = fetch(delta + here + i * channels, valid & real, kind)
            value = fetch(values + here + i * channels, valid & real, kind)
            vector = fetch(vectors + now * size + n + i * size, (n < size) & real, kind)
            keep = tl.exp2(step[:, None] * speed)
            if DOWN:
                if gate is not None:
                    opened = fetch(gate + now * gate_time + channel + i * gate_time, valid & real, kind)
                    value *= opened * tl.sigmoid(opened)
                state = keep * (state + value[:, None] * vector[None, :])
            else:
                state = keep * state + (step * value)[:, None] * vector[None, :]
            total += step
    own = row * segments + segment
    tl.store(ended + own * channels * size + slot, state, mask=held)
    tl.store(totals + own * channels + channel, total, mask=valid)


@triton.jit
def after(state, ended, totals, speed, slot, held, channel, valid, at, channels: tl.constexpr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The state after a whole segment (index `at`), by its effect."""
    total = tl.load(totals + at * channels + channel, mask=valid, other=0.0)
    return tl.exp2(total[:, None] * speed) * state + tl.load(ended + at * channels * size + slot, mask=held, other=0.0)


@triton.jit(do_not_specialize=VARIED)
def forward(  # type: ignore[no-untyped-def]
    x,
    delta,
    write,
    read,
    rate,
    skip,
    gate,
    initial,
    ended,
    totals,
    starts,
    outputs,
    final,
    time,
    tiles,
    segments,
    channels: tl.constexpr,
    gate_time: tl.constexpr,
    size: tl.constexpr,
    SIZE: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, segment, channel, valid, n, slot, held, speed = place(rate, segments, channels, size, SIZE, BLOCK)
    kind: tl.constexpr = speed.dtype
    state = tl.load(initial + row * channels * size + slot, mask=held, other=0.0)
    for earlier in range(segment):
        at = row * segments + earlier
        state = after(state, ended, totals, speed, slot, held, channel, valid, at, channels, size)
    if skip is not None:
        through = tl.load(skip + channel, mask=valid, other=0.0).to(kind)
    each = tl.cdiv(tiles, segments)
    for tile in range(segment * each, min(segment * each + each, tiles)):
        if starts is not None:
            tl.store(starts + (row * tiles + tile) * channels * size + slot, state, mask=held)
        now = row * time + tile * STEPS
        here = now * channels + channel
        chosen = now * size + n
        found = ()
        for i in tl.static_range(STEPS):
            real = tile * STEPS + i < time
            step = fetch(delta + here + i * channels, valid & real, kind)
            u = fetch(x + here + i * channels, valid & real, kind)
            entry = fetch(write + chosen + i * size, (n < size) & real, kind)
            reading = fetch(read + chosen + i * size, (n < size) & real, kind)
            state = tl.exp2(step[:, None] * speed) * state + (step * u)[:, None] * entry[None, :]
            y = tl.sum(state * reading[None, :], 1)
            if skip is not None:
                y += through * u
            if gate is not None:
                opened = fetch(gate + now * gate_time + channel + i * gate_time, valid & real, kind)
                y *= opened * tl.sigmoid(opened)
            found = found + (y,)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(STEPS):
            tl.store(outputs + here + i * channels, found[i], mask=valid & (tile * STEPS + i < time))
    if segment == segments - 1:
        tl.store(final + row * channels * size + slot, state, mask=held)


@triton.jit(do_not_specialize=VARIED)
def backward(  # type: ignore[no-untyped-def]  # noqa: PLR0915
    x,
    delta,
    write,
    read,
    rate,
    skip,
    gate,
    for_final,
    ended,
    totals,
    starts,
    for_outputs,
    for_x,
    for_delta,
    for_write,
    for_read,
    for_rate,
    for_skip,
    for_gate,
    for_initial,
    time,
    tiles,
    segments,
    batch,
    channels: tl.constexpr,
    gate_time: tl.constexpr,
    size: tl.constexpr,
    SIZE: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Recomputes the states of each tile from `starts`, then runs backwards over it.

    Partial gradients, summed afterwards: `for_rate` (batch, segments, channels, size) and `for_skip` (batch, segments,
    channels) per segment; `for_write` and `for_read` (blocks, batch, time, size) per block of channels."""
    row, segment, channel, valid, n, slot, held, speed = place(rate, segments, channels, size, SIZE, BLOCK)
    kind: tl.constexpr = speed.dtype
    carry = tl.load(for_final + row * channels * size + slot, mask=held, other=0.0)
    for count in range(segments - 1 - segment):
        at = row * segments + segments - 1 - count
        carry = after(carry, ended, totals, speed, slot, held, channel, valid, at, channels, size)
    if skip is not None:
        through = tl.load(skip + channel, mask=valid, other=0.0).to(kind)
    skipped = tl.zeros((BLOCK,), kind)
    rated = tl.zeros((BLOCK, SIZE), kind)
    part = (tl.program_id(0) % tl.cdiv(channels, BLOCK)).to(tl.int64) * batch + row
    each = tl.cdiv(tiles, segments)
    first = segment * each
    last = min(first + each, tiles)
    for count in range(first, last):
        tile = first + last - 1 - count
        state = tl.load(starts + (row * tiles + tile) * channels * size + slot, mask=held, other=0.0)
        now = row * time + tile * STEPS
        here = now * channels + channel
        chosen = now * size + n
        kept = ()
        for i in tl.static_range(STEPS):
            real = tile * STEPS + i < time
            step = fetch(delta + here + i * channels, valid & real, kind)
            u = fetch(x + here + i * channels, valid & real, kind)
            entry = fetch(write + chosen + i * size, (n < size) & real, kind)
            stayed = tl.exp2(step[:, None] * speed) * state
            state = stayed + (step * u)[:, None] * entry[None, :]
            kept = kept + (stayed,)  # type: ignore[assignment]  # noqa: RUF005
        tl.debug_barrier()  # else all loads and decays would be kept in registers until the second loop
        found = ()
        for i in tl.static_range(STEPS - 1, -1, -1):
            real = tile * STEPS + i < time
            step = fetch(delta + here + i * channels, valid & real, kind)
            u = fetch(x + here + i * channels, valid & real, kind)
            given = fetch(for_outputs + here + i * channels, valid & real, kind)
            entry = fetch(write + chosen + i * size, (n < size) & real, kind)[None, :]
            reading = fetch(read + chosen + i * size, (n < size) & real, kind)[None, :]
            stayed = kept[i]
            history = stayed + (step * u)[:, None] * entry
            gated = given
            if gate is not None:
                opened = fetch(gate + now * gate_time + channel + i * gate_time, valid & real, kind)
                share = tl.sigmoid(opened)
                y = tl.sum(history * reading, 1)
                if skip is not None:
                    y += through * u
                gated = given * y * share * (1 + opened * (1 - share))
                given *= opened * share
            total = carry + given[:, None] * reading
            carry = tl.exp2(step[:, None] * speed) * total
            for_pushed = tl.sum(total * entry, 1)
            moved = total * stayed
            rated += moved * step[:, None]
            for_u = step * for_pushed
            if skip is not None:
                for_u += through * given
                skipped += given * u
            for_step = u * for_pushed + tl.sum(moved * speed, 1) * LN2
            for_entry = tl.sum(total * (step * u)[:, None], 0)
            for_reading = tl.sum(history * given[:, None], 0)
            found = ((for_u, for_step, gated, for_entry, for_reading),) + found  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(STEPS):
            real = tile * STEPS + i < time
            tl.store(for_x + here + i * channels, found[i][0], mask=valid & real)
            tl.store(for_delta + here + i * channels, found[i][1], mask=valid & real)
            if gate is not None:
                tl.store(for_gate + here + i * channels, found[i][2], mask=valid & real)
            mine = (part * time + tile * STEPS) * size + n + i * size
            tl.store(for_write + mine, found[i][3], mask=(n < size) & real)
            tl.store(for_read + mine, found[i][4], mask=(n < size) & real)
    own = row * segments + segment
    tl.store(for_rate + own * channels * size + slot, rated, mask=held)
    if skip is not None:
        tl.store(for_skip + own * channels + channel, skipped, mask=valid)
    if segment == 0:
        tl.store(for_initial + row * channels * size + slot, carry, mask=held)
