"""Products filled up to where a GPU reads many numbers at once are the same products."""

import pytest
import torch
import torch.nn.functional as F

from elman.compiler.interpreter import ALIGNMENT, aligned_linear, matmul_transposed


@pytest.mark.parametrize("width", [8, 11, 30])
def test_padded_matmuls_equal_torch(width: int) -> None:
    """Catches: columns that fill up are given too; the bias is left out."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 5, width), torch.randn(6, width), torch.randn(6)
    given = [one.double().requires_grad_() for one in (x, weight, bias)]
    again = [one.detach().clone().requires_grad_() for one in given]
    found, expected = aligned_linear(*given), F.linear(*again)
    torch.testing.assert_close(found, expected)
    (found**2).sum().backward()
    (expected**2).sum().backward()
    for one, other in zip(given, again, strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    left, right = torch.randn(7, width), torch.randn(7, width + 1)
    torch.testing.assert_close(matmul_transposed(left, right), left.t() @ right)


@pytest.mark.parametrize("width", [8, 11])
def test_padded_rows_are_aligned(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: nothing is filled up."""
    seen: list[int] = []
    plain = F.linear
    monkeypatch.setattr(F, "linear", lambda x, *rest: (seen.append(x.stride(-2)), plain(x, *rest))[1])
    aligned_linear(torch.randn(5, width), torch.randn(6, width))
    assert seen[0] % ALIGNMENT == 0
