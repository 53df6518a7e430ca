"""The short convolution equals its definition in every form that runs without a GPU."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from short_convolution_cases import assert_like_the_definition

from elman.ops.short_convolution import FORMS, shifted, short_convolution


@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 12),
    channels=st.integers(1, 4),
    taps=st.integers(1, 6),
    bias=st.booleans(),
)
def test_shifted_products_equal_the_definition(batch: int, time: int, channels: int, taps: int, bias: bool) -> None:
    """Catches: taps in turned order; the gradient of inputs without the first tap."""
    assert_like_the_definition(shifted, batch, time, channels, taps, bias)


def test_half_precision_is_accumulated_in_float32() -> None:
    """Catches: products added up in bfloat16."""
    assert_like_the_definition(shifted, 2, 50, 3, 4, True, torch.bfloat16)


def test_the_short_convolution_is_the_equation() -> None:
    seen, weight = torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([[[10.0, 1.0]]])
    torch.testing.assert_close(short_convolution(seen, weight, None), torch.tensor([[[12.0], [24.0]]]))
    torch.testing.assert_close(short_convolution(seen, weight, torch.ones(1)), torch.tensor([[[13.0], [25.0]]]))
    assert FORMS.explain(seen) == "shifted: shifted multiply-adds in torch"


def test_gradients_of_gradients_are_right() -> None:
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 6, 3), (3, 1, 3), (3,))]
    assert torch.autograd.gradgradcheck(shifted, leaves)
