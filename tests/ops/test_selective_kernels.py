"""The selective scan's kernels equal the definition in outputs, final state and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton_interpreter import DEVICE

from elman.ops import selective
from elman.ops.forms import using
from elman.ops.selective import Selection, kernel

pytestmark = pytest.mark.usefixtures("triton_interpreter")


@pytest.fixture(params=[1, 100], ids=["whole", "cut"])
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Several blocks of channels and several stretches of time, with a rest in both; time in segments or not."""
    monkeypatch.setattr(kernel, "PLAN", kernel.LaunchConfig(steps=2, block=2, programs=request.param, shortest=3))


def draws(batch: int, time: int, channels: int, size: int, kind: torch.dtype = torch.float64) -> list[Tensor]:
    """x, delta, write, read, rate, initial, skip and a gate that is one half of something."""
    generator = torch.Generator().manual_seed(time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, kind)

    along, chosen = (batch, time, channels), (batch, time, size)
    parts = [normal(*along), normal(*along).exp(), normal(*chosen), normal(*chosen), -normal(channels, size).exp()]
    return [*parts, normal(batch, channels, size), normal(channels), normal(batch, time, 2 * channels)]


def everything(form, tensors: list[Tensor], skipped: bool = True, gated: bool = True) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    x, delta, write, read, rate, initial, skip, both = leaves
    gate = both[..., both.shape[-1] // 2 :] if gated else None
    y, final = form(x, Selection(delta, write, read), rate, initial, skip if skipped else None, gate)
    weights = torch.linspace(-1, 2, y.numel(), device=DEVICE).view(y.shape).to(y.dtype)
    ((y * weights).sum() + (final**2).sum()).backward()
    return [y.detach(), final.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@settings(max_examples=6)
@given(
    batch=st.integers(1, 2),
    time=st.sampled_from([1, 4, 9]),
    channels=st.sampled_from([1, 3]),
    size=st.integers(1, 3),
    skipped=st.booleans(),
    gated=st.booleans(),
)
def test_the_kernels_equal_the_definition(batch, time, channels, size, skipped, gated) -> None:
    """Catches: the segment just before forgotten; gradients of later segments forgotten, or found without the gate's
    sigmoid; the gradient of step sizes in powers of two."""
    tensors = draws(batch, time, channels, size)
    found = everything(kernel.run, tensors, skipped, gated)
    expected = everything(selective.chunked.reference, tensors, skipped, gated)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_step_of_size_zero_does_not_change_the_state() -> None:
    """So rows of unequal length need nothing else."""
    tensors = draws(2, 7, 3, 2)
    tensors[1][1, 2:] = 0
    short = [part[1:, :2] if part.dim() == 3 and part.shape[1] == 7 else part for part in tensors]
    short[5] = tensors[5][1:]

    def last(given: list[Tensor]) -> Tensor:
        x, delta, write, read, rate, initial, _, _ = given
        return kernel.run(x, Selection(delta, write, read), rate, initial, None, None)[1][-1]

    torch.testing.assert_close(last(tensors), last(short), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("shape", [(2, 1000, 96, 16), (1, 513, 40, 5), (3, 32, 33, 16)])
def test_on_a_gpu_the_kernel_is_right(shape: tuple[int, ...]) -> None:
    tensors = draws(*shape)
    with using("kernel"):
        found = everything(selective.selective_scan, [tensor.float() for tensor in tensors])
    for mine, true in zip(found, everything(selective.chunked.reference, tensors), strict=True):
        assert ((mine - true).abs().max() / true.abs().max()) < 2e-5
