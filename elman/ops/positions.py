"""Position encodings: sinusoidal, rotary (RoPE) and linear biases (ALiBi).

Positions count from a row's first token, so that a sequence may be processed in chunks. Angles are computed in float64:
in float32 that of the millionth position is wrong in its second digit.
"""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """Sinusoidal encoding (Vaswani et al., 2017): sines and cosines alternate (..., width), in float32 at least."""
    angles = _angles(positions, (width + 1) // 2, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]


def rotary_angles(positions: Tensor, size: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine (..., size / 2) of the rotation of each pair at these positions."""
    angles = _angles(positions, size // 2, base)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding (Su et al., 2021; Llama's layout): rotates pairs of units, one of each half.

    The dot product of a rotated query and key depends on their contents and their distance only.
    """
    first, second = x.chunk(2, dim=-1)
    cosine, sine = (part.to(torch.promote_types(x.dtype, torch.float32)) for part in (cosine, sine))
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    """ALiBi slopes (Press et al., 2022): what a head subtracts from a score per step of distance; 1/2 … 1/256 for 8.

    If the number of heads is no power of two, the others are interleaved slopes of the next power.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    slopes += [2 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    return torch.tensor(slopes)


def _angles(positions: Tensor, count: int, base: float) -> Tensor:
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64  # MPS has no float64
    speeds = base ** -(torch.arange(count, dtype=dtype, device=positions.device) / count)
    return positions.to(dtype).unsqueeze(-1) * speeds
