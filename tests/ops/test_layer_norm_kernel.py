"""The kernels of layer norm equal torch's; without a GPU they are interpreted."""

import pytest
import torch
from torch.nn import functional as F
from triton_interpreter import DEVICE

from elman.ops import norms

pytestmark = pytest.mark.usefixtures("triton_interpreter")


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 3, 16), (7, 33)], ids=str)
@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients(
    shape: tuple[int, ...], kind: torch.dtype, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors far from zero; more of them than programs. Catches: numbers beyond the last counted in the variance; the
    mean's share of the gradient left out; one part of the sums."""
    monkeypatch.setattr(norms, "PARTS", 3)
    torch.manual_seed(0)
    x = (3 * torch.randn(shape) + 5).to(DEVICE, kind)
    weight, offset = torch.rand(shape[-1]).to(DEVICE, kind) + 0.5, torch.randn(shape[-1]).to(DEVICE, kind)
    given = [x, weight, *[offset] * bias]
    slopes = torch.randn(shape).to(DEVICE, kind)
    found = []
    for wide in (False, True):
        leaves = [(one.double() if wide else one.clone()).requires_grad_() for one in given]
        last = leaves[2] if bias else None
        made = (
            F.layer_norm(leaves[0], weight.shape, leaves[1], last, 1e-5)
            if wide
            else norms.layer_norm_kernel(leaves[0], leaves[1], last, 1e-5)
        )
        gradients = torch.autograd.grad(made, leaves, slopes.to(made.dtype))
        assert wide or all(one.dtype == kind for one in (made, *gradients))
        found.append([one.double() for one in (made, *gradients)])
    close = 1e-4 if kind == torch.float32 else 1e-2
    torch.testing.assert_close(*found, rtol=close, atol=close)


def test_strided_gradients() -> None:
    """As a slice of something wider, and one number for all. Catches: the distance of rows taken for their length."""
    x = torch.randn(2, 3, 8, device=DEVICE, requires_grad=True)
    weight = torch.rand(8, device=DEVICE, requires_grad=True)
    made, expected = norms.layer_norm_kernel(x, weight, None, 1e-5), F.layer_norm(x, (8,), weight, None, 1e-5)
    wide = torch.randn(2, 3, 20, device=DEVICE)
    for slopes in (wide[..., 4:12], wide[..., ::2][..., :8], torch.ones((), device=DEVICE).expand(2, 3, 8)):
        ours, theirs = (torch.autograd.grad(one, [x, weight], slopes, retain_graph=True) for one in (made, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
