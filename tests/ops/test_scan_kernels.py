"""The scan's kernels equal the definition in states, final state and gradients; without a GPU they are interpreted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton_interpreter import DEVICE

from elman.errors import TrainingError
from elman.ops import kernel_timeout, scan, taps
from elman.ops.forms import using
from elman.ops.scan import FORMS, kernel, linear_scan_kernel, linear_scan_reference

pytestmark = pytest.mark.usefixtures("triton_interpreter")

SMALL = kernel.LaunchConfig(block=4, steps=4)


@pytest.fixture(params=[1, 32], ids=["stretches", "windows"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of channels, several stretches of steps, with a rest in both."""
    monkeypatch.setattr(kernel, "PLAN", SMALL)
    monkeypatch.setattr(kernel, "BACK", SMALL)
    monkeypatch.setattr(kernel, "MAX_WINDOW", request.param)


def draws(shape: tuple[int, ...], kind: torch.dtype = torch.float64, decay: str = "full") -> list[Tensor]:
    batch, time, *width = shape
    generator = torch.Generator().manual_seed(time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, kind)

    form = {"full": shape, "constant": width, "per step": (batch, time, *[1] * len(width))}[decay]
    return [normal(*form).sigmoid(), normal(*shape), normal(batch, *width)]


def everything(run, tensors: list[Tensor], *rest) -> list[Tensor]:
    """States, final state and the gradients of a sum that weighs each position."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    history, final = run(*leaves, *rest)
    weights = torch.linspace(-1, 2, history.numel(), device=DEVICE).view(history.shape).to(history.dtype)
    ((history * weights).sum() + (final**2).sum()).backward()
    return [history.detach(), final.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@settings(max_examples=8)
@given(
    batch=st.integers(1, 2),
    time=st.sampled_from([1, 4, 7, 13]),
    width=st.sampled_from([(), (1,), (5,), (2, 3)]),
    decay=st.sampled_from(["full", "constant", "per step"]),
    reverse=st.booleans(),
    ragged=st.booleans(),
)
def test_a_kernel_equals_the_definition(batch, time, width, decay, reverse, ragged) -> None:
    """Catches: the decay not taken late in the gradient; decays after the end 0 instead of 1; the product with the
    state after the step; the gradient of the final state forgotten."""
    tensors = draws((batch, time, *width), decay=decay)
    lengths = torch.tensor([time // 2, 0], device=DEVICE)[:batch] if ragged and not reverse else None
    found = everything(linear_scan_kernel, tensors, lengths, reverse)
    torch.testing.assert_close(
        found, everything(linear_scan_reference, tensors, lengths, reverse), rtol=1e-10, atol=1e-10
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("reverse", [False, True])
def test_the_window_does_not_change_the_result(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: only the last effects of a window that were asked for together counted; effects after the own stretch,
    too."""
    monkeypatch.setattr(kernel, "MAX_WINDOW", min(kernel.MAX_WINDOW, 11))
    tensors = draws((2, 45, 3))
    found = everything(linear_scan_kernel, tensors, None, reverse)
    torch.testing.assert_close(found, everything(linear_scan_reference, tensors, None, reverse), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_state_is_float32_for_half_precision_inputs() -> None:
    """Catches: the state kept in the inputs' dtype (stops at 256)."""
    half = torch.bfloat16
    tensors = [torch.ones(1, 300, 1), torch.ones(1, 300, 1), torch.zeros(1, 1)]
    history, final = linear_scan_kernel(*(tensor.to(DEVICE, half) for tensor in tensors))
    assert history.dtype == final.dtype == torch.float32
    assert final.item() == 300
    leaves = [tensor.to(half) for tensor in draws((2, 9, 5))]
    found, exact = (
        everything(linear_scan_kernel, leaves),
        everything(linear_scan_reference, [t.double() for t in leaves]),
    )
    assert [part.dtype for part in found] == [torch.float32, torch.float32, half, half, half]
    for mine, true in zip(found, exact, strict=True):
        assert ((mine - true).abs().max() / true.abs().max()) < (1e-6 if mine.dtype == torch.float32 else 1e-2)


@pytest.mark.usefixtures("small")
def test_gradients_that_are_not_needed_are_not_computed() -> None:
    decay, inputs, initial = draws((2, 5, 3))
    inputs.requires_grad_()
    linear_scan_kernel(decay, inputs, initial)[0].sum().backward()
    assert decay.grad is None
    assert inputs.grad is not None


@pytest.mark.parametrize("widest", [1, 4])
def test_nan_propagates_between_tiles(widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one whose bits mean that nothing was told yet. Catches: told as it is, whereupon others waited."""
    monkeypatch.setattr(kernel, "PLAN", SMALL)
    monkeypatch.setattr(kernel, "MAX_WINDOW", widest)
    if DEVICE == "cpu":  # where nobody has to wait
        monkeypatch.setattr(kernel_timeout, "PATIENCE", 10)
    decay, inputs, initial = draws((1, 20, 2))
    initial.view(torch.int64)[0, 1] = -1
    history, final = linear_scan_kernel(decay, inputs, initial)
    assert history[..., 1].isnan().all()
    assert not history[..., 0].isnan().any()
    assert final.isnan().tolist() == [[False, True]]
    kernel_timeout.check(inputs.device, wait=True)


@pytest.mark.skipif(DEVICE != "cpu", reason="the interpreter takes another function, the compiler has taken this one")
def test_a_tile_that_waits_in_vain_times_out_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the alarm not set."""
    from elman.ops.scan import lookback

    monkeypatch.setattr(kernel, "PLAN", SMALL)
    tensors = draws((1, 20, 2))
    with monkeypatch.context() as patch:
        patch.setattr(kernel_timeout, "PATIENCE", 3)
        patch.setattr(lookback, "publish", lambda place, value, valid: None)
        history, _ = linear_scan_kernel(*tensors)
        assert history[0, 4:].isnan().all()
        with pytest.raises(TrainingError, match="timed out"):
            linear_scan_kernel(*tensors)
    assert not linear_scan_kernel(*tensors)[0].isnan().any()


def test_obstacles_of_the_kernel_name_the_reason() -> None:
    x = torch.zeros(2, 3, 4)
    assert kernel.obstacle(x) == "the kernel needs a GPU, not cpu"
    with taps.record("here"):
        assert FORMS.that_can_run(x) == ["reference"]
        taps.tap("here", x)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("shape", [(8, 1000, 96), (1, 5000, 7), (3, 4097, 33)])
def test_on_a_gpu_the_kernel_is_right(shape: tuple[int, ...]) -> None:
    tensors = draws(shape)
    with using("kernel"):
        found = everything(scan.linear_scan, [tensor.float() for tensor in tensors])
    for mine, true in zip(found, everything(linear_scan_reference, tensors), strict=True):
        assert ((mine - true).abs().max() / true.abs().max()) < 1e-5
