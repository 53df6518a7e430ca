"""Positions as numbers: waves added to the input, rotations of queries and keys, slopes against distance.

All take positions counted from a row's first token, so that a sequence may be cut. Angles are formed in float64:
in float32 the angle of the millionth position would be wrong in its second digit.
"""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """Sine and cosine by turns at falling frequencies (Vaswani et al., 2017): (..., width) in float32 at least."""
    angles = _angles(positions, (width + 1) // 2, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]


def rotary_angles(positions: Tensor, size: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine (..., size / 2) by which `rotate` turns each pair at these positions."""
    angles = _angles(positions, size // 2, base)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn pairs of units, one of the first half with one of the second (Su et al., 2021, in Llama's layout).

    The product of a turned query and a turned key depends on their contents and their distance only.
    """
    first, second = x.chunk(2, dim=-1)
    cosine, sine = (part.to(torch.promote_types(x.dtype, torch.float32)) for part in (cosine, sine))
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    """What each head takes from a score for each step of distance (Press et al., 2022): 1/2 ... 1/256 for 8 heads.

    Where the number of heads is no power of two, the rest comes from between the slopes of the next power.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    slopes += [2 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    return torch.tensor(slopes)


def _angles(positions: Tensor, count: int, base: float) -> Tensor:
    kind = torch.float32 if positions.device.type == "mps" else torch.float64  # MPS has no float64
    speeds = base ** -(torch.arange(count, dtype=kind, device=positions.device) / count)
    return positions.to(kind).unsqueeze(-1) * speeds
