"""Positions: rotations see distance only, far positions stay exact, slopes are the published ones."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.ops.positions import alibi_slopes, rotary_angles, rotate, sinusoids


@given(near=st.integers(0, 50), distance=st.integers(0, 50), shift=st.integers(0, 10**6), half=st.integers(1, 4))
def test_the_dot_product_of_rotated_vectors_depends_on_distance_only(near, distance, shift, half) -> None:
    """Also a million positions on: angles in float32 would fail here. Catches: halves exchanged; float32 angles."""
    query, key = torch.randn(2, 2 * half, dtype=torch.float64, generator=torch.Generator().manual_seed(near))

    def product(start: int) -> torch.Tensor:
        places = torch.tensor([start + near + distance, start + near])
        cosine, sine = rotary_angles(places, 2 * half)
        turned = rotate(torch.stack([query, key]), cosine, sine)
        return turned[0] @ turned[1]

    torch.testing.assert_close(product(shift), product(0), rtol=1e-8, atol=1e-8)


def test_rotation_preserves_norm_and_precision_and_is_the_identity_at_position_0() -> None:
    x = torch.randn(3, 4)
    angles = rotary_angles(torch.arange(3), 4)
    torch.testing.assert_close(rotate(x, *angles).norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(rotate(x, *angles)[0], x[0])
    assert rotate(x.bfloat16(), *angles).dtype == torch.bfloat16
    second = rotate(torch.tensor([[0.0] * 4, [1.0, 0, 0, 0], [0.0] * 4]), *angles)[1]
    torch.testing.assert_close(second, torch.tensor([math.cos(1), 0, math.sin(1), 0]))


def test_sinusoids_alternate_sine_and_cosine() -> None:
    found = sinusoids(torch.tensor([0, 7]), 5)
    expected = [
        [0, 1, 0, 1, 0],
        [f(7 / 10_000 ** (2 * (k // 2) / 6)) for k, f in enumerate([math.sin, math.cos] * 2 + [math.sin])],
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    six = alibi_slopes(6).tolist()
    assert six == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
