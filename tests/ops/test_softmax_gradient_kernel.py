"""The kernel of softmax errors equals the definition; without a GPU it is interpreted."""

import pytest
import torch
from torch.nn import functional as F
from triton_interpreter import DEVICE

from elman.ops import cross_entropy, softmax_gradient_kernel

pytestmark = pytest.mark.usefixtures("triton_interpreter")


@pytest.mark.parametrize(("rows", "words"), [(1, 1), (3, 7), (5, 16), (4, 50)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_scores_become_their_gradient(
    rows: int, words: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: powers not scaled when a larger score comes; one subtracted beside the target."""
    monkeypatch.setattr(softmax_gradient_kernel, "BLOCK", 16)
    generator = torch.Generator().manual_seed(words)
    scores = (10 * torch.randn(rows, words, generator=generator)).to(DEVICE, kind)
    if words > 1:
        scores[:, 1] = -torch.inf  # a word that nobody can say
    targets = torch.randint(2, words, (rows,), generator=generator).to(DEVICE) if words > 2 else scores[:, 0].long() * 0
    exact = scores.double().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="none")
    expected.sum().backward()
    nats = softmax_gradient_kernel.softmax_errors(scores, targets)
    torch.testing.assert_close(nats.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    close = 1e-6 if kind == torch.float32 else 4e-3
    torch.testing.assert_close(scores.double(), exact.grad, rtol=close, atol=close)


@pytest.mark.parametrize("bias", [True, False])
def test_the_chunked_cross_entropy_may_take_it(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the bias's share of the last chunk alone."""
    monkeypatch.setattr(softmax_gradient_kernel, "BLOCK", 16)
    monkeypatch.setattr(cross_entropy, "_has_kernel", lambda logits: True)
    monkeypatch.setattr(cross_entropy, "CPU_LOGITS", 60)
    monkeypatch.setattr(cross_entropy, "GPU_LOGITS", 60)
    torch.manual_seed(0)
    shapes = [(7, 4), (20, 4), (20,)] if bias else [(7, 4), (20, 4)]
    leaves = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    features, weight, *offset = leaves
    targets = torch.randint(20, (7,), device=DEVICE)
    given = features, weight, offset[0] if bias else None, targets
    found, expected = cross_entropy.cross_entropy_sum(*given), cross_entropy.cross_entropy_reference(*given)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves))
