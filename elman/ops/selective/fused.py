"""The selective scan in Triton, from step sizes to gated outputs in one kernel, and its gradient in another.

A program walks through time for a block of channels of one row, many steps at once; for each number of the state in
turn it makes the decays, scans them, and adds what is read. States are never stored but where stretches begin, in
`starts` (batch, stretches + 1, size, channels), from which the gradient computes them again.
"""

import triton
import triton.language as tl

from elman.ops.scan.walks import follow


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    x,
    delta,
    write,
    read,
    rate,
    skip,
    gate,
    starts,
    outputs,
    time,
    channels,
    size,
    stretches,
    gate_time,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(channels, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    valid = channel < channels
    kind: tl.constexpr = starts.dtype.element_ty
    last = (tl.arange(0, STEPS) == STEPS - 1)[:, None]
    for stretch in range(stretches):
        t = stretch * STEPS + tl.arange(0, STEPS)
        real = t < time
        whole = real[:, None] & valid[None, :]
        here = (row * time + t)[:, None] * channels + channel[None, :]
        step = tl.load(delta + here, mask=whole, other=0.0).to(kind)  # after the end 0: the state stays
        u = tl.load(x + here, mask=whole, other=0.0).to(kind)
        pushed = step * u
        y = tl.zeros((STEPS, BLOCK), kind)
        if skip is not None:
            y += tl.load(skip + channel, mask=valid, other=0.0).to(kind)[None, :] * u
        for n in range(size):
            speed = tl.load(rate + n * channels + channel, mask=valid, other=0.0)
            chosen = (row * time + t) * size + n
            entry = tl.load(write + chosen, mask=real, other=0.0).to(kind)
            reading = tl.load(read + chosen, mask=real, other=0.0).to(kind)
            keep, new = tl.associative_scan((tl.exp(step * speed[None, :]), pushed * entry[:, None]), 0, follow)
            begun = starts + ((row * (stretches + 1) + stretch) * size + n) * channels + channel
            history = keep * tl.load(begun, mask=valid, other=0.0)[None, :] + new
            y += history * reading[:, None]
            tl.store(begun + size * channels, tl.sum(tl.where(last, history, 0.0), 0), mask=valid)
        if gate is not None:
            opened = tl.load(gate + (row * time + t)[:, None] * gate_time + channel[None, :], mask=whole, other=0.0)
            opened = opened.to(kind)
            y *= opened / (1 + tl.exp(-opened))
        tl.store(outputs + here, y, mask=whole)
        tl.debug_barrier()  # the next stretch begins at states that other threads may have stored


@triton.jit
def backward(  # type: ignore[no-untyped-def]  # noqa: PLR0915
    x,
    delta,
    write,
    read,
    rate,
    skip,
    gate,
    starts,
    for_outputs,
    future,
    for_x,
    for_delta,
    for_write,
    for_read,
    for_rate,
    for_skip,
    for_gate,
    time,
    channels,
    size,
    stretches,
    gate_time,
    batch,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`future` and `for_rate` (batch, size, channels) and `for_skip` (batch, channels) are of the row alone,
    `for_write` and `for_read` (blocks, batch, time, size) of the channels alone: to be summed afterwards."""
    blocks = tl.cdiv(channels, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    channel = block * BLOCK + tl.arange(0, BLOCK)
    valid = channel < channels
    kind: tl.constexpr = starts.dtype.element_ty
    first = (tl.arange(0, STEPS) == 0)[:, None]
    skipped = tl.zeros((BLOCK,), kind)
    for count in range(stretches):
        stretch = stretches - 1 - count
        within = tl.arange(0, STEPS)[:, None]
        t = stretch * STEPS + tl.arange(0, STEPS)
        real = t < time
        whole = real[:, None] & valid[None, :]
        here = (row * time + t)[:, None] * channels + channel[None, :]
        step = tl.load(delta + here, mask=whole, other=0.0).to(kind)
        later = tl.load(delta + here + channels, mask=valid[None, :] & (t + 1 < time)[:, None], other=0.0).to(kind)
        sooner = tl.load(delta + here - channels, mask=whole & (within > 0), other=0.0).to(kind)
        u = tl.load(x + here, mask=whole, other=0.0).to(kind)
        u_before = tl.load(x + here - channels, mask=whole & (within > 0), other=0.0).to(kind)
        given = tl.load(for_outputs + here, mask=whole, other=0.0).to(kind)
        if gate is not None:
            opened = tl.load(gate + (row * time + t)[:, None] * gate_time + channel[None, :], mask=whole, other=0.0)
            opened = opened.to(kind)
            share = 1 / (1 + tl.exp(-opened))
            for_gated = given * share * (1 + opened * (1 - share))
            given *= opened * share
        y = tl.zeros((STEPS, BLOCK), kind)
        for_pushed = tl.zeros((STEPS, BLOCK), kind)
        for_step = tl.zeros((STEPS, BLOCK), kind)
        for n in range(size):
            mine = (row * size + n) * channels + channel
            speed = tl.load(rate + n * channels + channel, mask=valid, other=0.0)[None, :]
            chosen = (row * time + t) * size + n
            entry = tl.load(write + chosen, mask=real, other=0.0).to(kind)[:, None]
            entry_before = tl.load(write + chosen - size, mask=real & (t > stretch * STEPS), other=0.0).to(kind)
            reading = tl.load(read + chosen, mask=real, other=0.0).to(kind)[:, None]
            keep, new = tl.associative_scan(
                (tl.exp(sooner * speed), sooner * u_before * entry_before[:, None]), 0, follow
            )
            begun = starts + ((row * (stretches + 1) + stretch) * size + n) * channels + channel
            kept = (keep * tl.load(begun, mask=valid, other=0.0)[None, :] + new) * tl.exp(step * speed)
            history = kept + step * u * entry
            y += history * reading
            keep, new = tl.associative_scan((tl.exp(later * speed), given * reading), 0, follow, reverse=True)
            total = keep * tl.load(future + mine, mask=valid, other=0.0)[None, :] + new
            tl.store(future + mine, tl.sum(tl.where(first, total, 0.0), 0), mask=valid)
            for_pushed += total * entry
            for_step += total * kept * speed
            so_far = tl.load(for_rate + mine, mask=valid, other=0.0)
            tl.store(for_rate + mine, so_far + tl.sum(total * kept * step, 0), mask=valid)
            part = (block * batch * time).to(tl.int64) * size + chosen
            tl.store(for_write + part, tl.sum(total * step * u, 1), mask=real)
            tl.store(for_read + part, tl.sum(given * history, 1), mask=real)
        for_u = step * for_pushed
        if skip is not None:
            through = tl.load(skip + channel, mask=valid, other=0.0).to(kind)[None, :]
            y += through * u
            for_u += through * given
            skipped += tl.sum(given * u, 0)
        tl.store(for_x + here, for_u, mask=whole)
        tl.store(for_delta + here, u * for_pushed + for_step, mask=whole)
        if gate is not None:
            tl.store(for_gate + here, for_gated * y, mask=whole)
        tl.debug_barrier()  # other threads may read what was stored of the future
    if skip is not None:
        tl.store(for_skip + row * channels + channel, skipped, mask=valid)
