"""The short convolution's kernels equal the definition in outputs and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from short_convolution_cases import assert_like_the_definition
from triton_interpreter import DEVICE

from elman.ops import short_convolution
from elman.ops.short_convolution import LaunchConfig, kernel

pytestmark = pytest.mark.usefixtures("triton_interpreter")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles of time and channels, with a rest in both, and several tiles for each part."""
    monkeypatch.setattr(short_convolution, "PLAN", LaunchConfig(steps=4, block=2, parts=2))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@settings(max_examples=8)
@given(
    batch=st.integers(1, 2),
    time=st.sampled_from([1, 4, 9]),
    channels=st.sampled_from([1, 3]),
    taps=st.integers(1, 5),
    bias=st.booleans(),
)
def test_the_kernels_equal_the_definition(batch: int, time: int, channels: int, taps: int, bias: bool) -> None:
    """Catches: inputs after a row's end taken from the next; only the first tile of each part summed."""
    assert_like_the_definition(kernel, batch, time, channels, taps, bias, device=DEVICE)


@pytest.mark.usefixtures("small")
def test_half_precision_is_accumulated_in_float32() -> None:
    assert_like_the_definition(kernel, 2, 9, 3, 4, True, torch.bfloat16, device=DEVICE)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("shape", [(3, 1000, 200), (1, 7, 33), (64, 128, 1024)])
def test_on_a_gpu_the_kernel_is_right(shape: tuple[int, int, int]) -> None:
    assert_like_the_definition(kernel, *shape, 4, True, device=DEVICE)
    assert_like_the_definition(kernel, *shape, 4, True, torch.bfloat16, device=DEVICE)
