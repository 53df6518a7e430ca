"""What every form of the short convolution must equal."""

from collections.abc import Callable

import torch
from torch import Tensor

from elman.ops.short_convolution import reference


def assert_like_the_definition(
    form: Callable[..., Tensor],
    batch: int,
    time: int,
    channels: int,
    taps: int,
    bias: bool,
    kind: torch.dtype = torch.float64,
    device: str = "cpu",
) -> None:
    """Outputs and gradients; parameters of narrow inputs are float32, as under autocast."""
    generator = torch.Generator().manual_seed(time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device)

    wide = torch.promote_types(kind, torch.float32)
    seen, weight = normal(batch, taps - 1 + time, channels).to(kind), normal(channels, 1, taps).to(wide)
    parameters = [weight, *([normal(channels).to(wide)] if bias else [])]
    given = normal(batch, time, channels).to(kind)

    def everything(run: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [leaf.clone().requires_grad_() for leaf in (seen, *parameters)]
        outputs = run(*leaves, *([] if bias else [None]))
        assert outputs.dtype == kind
        outputs.backward(given)
        return [outputs.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    close = {"rtol": 1e-10, "atol": 1e-10} if kind == torch.float64 else {}
    mine, expected = everything(form), everything(reference)
    seen, parameters, given = seen.double(), [one.double() for one in parameters], given.double()
    narrow, kind = kind, torch.float64
    for ours, theirs, exact in zip(mine, expected, everything(reference), strict=True):
        if ours.dtype == narrow:
            torch.testing.assert_close(ours, theirs, **close)
        else:  # a float32 sum over the whole batch, whose rounding depends on the order: as near as the definition's
            allowed = 1.5 * (theirs.double() - exact).norm() + 1e-6 * exact.norm()
            assert (ours.double() - exact).norm() <= allowed
