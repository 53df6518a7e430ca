"""RMS norm: the fused form equals the definition, in every precision."""

import torch

from elman.ops.norms import RMSNorm, rms_norm_reference


def test_rms_norm_equals_its_definition_and_gives_vectors_of_one_length() -> None:
    """Planted: eps outside the root."""
    norm = RMSNorm(6, eps=0.1).double()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    found = []
    for function in (norm, lambda x: rms_norm_reference(x, norm.weight, 0.1)):
        x = torch.linspace(-2, 3, 24, dtype=torch.float64).view(4, 6).requires_grad_()
        norm.zero_grad()
        outputs = function(x)
        outputs.pow(3).sum().backward()
        found.append([outputs.detach(), x.grad, norm.weight.grad.clone()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    plain = RMSNorm(6)(torch.randn(4, 6))
    torch.testing.assert_close(plain.square().mean(-1), torch.ones(4))


def test_half_precision_is_widened() -> None:
    x = torch.randn(2, 6)
    norm = RMSNorm(6)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x.bfloat16()).dtype == torch.float32
    assert norm.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
