"""Layer norm in Triton: a program normalises one row (of `size` elements) at a time."""

import triton
import triton.language as tl


@triton.jit
def normalise(x, weight, bias, made, known, stride, rows, size, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Forward of one row; mean and 1 / standard deviation are saved in `known` (2, rows)."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    there = lane < size
    value = tl.load(x + row * stride + lane, mask=there, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / size
    away = tl.where(there, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(away * away, 0) / size + eps)
    result = away * scale * tl.load(weight + lane, mask=there, other=0.0).to(tl.float32)
    if bias is not None:
        result += tl.load(bias + lane, mask=there, other=0.0).to(tl.float32)
    tl.store(made + row * size + lane, result.to(made.dtype.element_ty), mask=there)
    tl.store(known + row, mean)
    tl.store(known + rows + row, scale)


@triton.jit
def differentiate(  # type: ignore[no-untyped-def]
    slopes, x, weight, known, made, sums, slopes_stride, x_stride, rows, size, BLOCK: tl.constexpr
):
    """Backward of every n-th row; partial gradients of weight and bias stay in registers until the end."""
    part, parts = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, BLOCK)
    there = lane < size
    gain = tl.load(weight + lane, mask=there, other=0.0).to(tl.float32)
    for_weight, for_bias = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for number in range(part, rows, parts):
        row = tl.cast(number, tl.int64)
        slope = tl.load(slopes + row * slopes_stride + lane, mask=there, other=0.0).to(tl.float32)
        value = tl.load(x + row * x_stride + lane, mask=there, other=0.0).to(tl.float32)
        mean, scale = tl.load(known + row), tl.load(known + rows + row)
        away = tl.where(there, (value - mean) * scale, 0.0)
        for_weight += slope * away
        for_bias += slope
        inner = slope * gain
        share, along = tl.sum(inner, 0) / size, tl.sum(inner * away, 0) / size
        result = (inner - share - away * along) * scale
        tl.store(made + row * size + lane, result.to(made.dtype.element_ty), mask=there)
    place = sums + tl.cast(part, tl.int64) * size + lane
    tl.store(place, for_weight, mask=there)
    tl.store(place + tl.cast(parts, tl.int64) * size, for_bias, mask=there)
