"""RMS norm: the fused form equals the definition, in every precision. Layer norm: who runs it."""

import pytest
import torch

from elman.ops import norms
from elman.ops.norms import FORMS, LayerNorm, RMSNorm


def test_rms_norm_equals_its_definition_and_gives_a_root_mean_square_of_one() -> None:
    """Catches: eps outside the root."""
    norm = RMSNorm(6, eps=0.1).double()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    found = []
    for function in (norm, lambda x: x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight):
        x = torch.linspace(-2, 3, 24, dtype=torch.float64).view(4, 6).requires_grad_()
        norm.zero_grad()
        outputs = function(x)
        outputs.pow(3).sum().backward()
        found.append([outputs.detach(), x.grad, norm.weight.grad.clone()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    plain = RMSNorm(6)(torch.randn(4, 6))
    torch.testing.assert_close(plain.square().mean(-1), torch.ones(4))


def test_half_precision_is_computed_in_float32_by_rms_norm() -> None:
    x = torch.randn(2, 6)
    norm = RMSNorm(6)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x.bfloat16()).dtype == torch.float32
    assert norm.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("reason", "shape", "kinds"),
    [
        ("float32", (2, 4), (torch.float32, torch.float32)),
        ("two dtypes", (2, 4), (torch.float16, torch.bfloat16)),
        ("more than", (1, 16385), (torch.float16, torch.float16)),
        ("no vectors", (0, 4), (torch.float16, torch.float16)),
    ],
)
def test_obstacles_of_the_layer_norm_kernel_name_the_reason(
    reason: str, shape: tuple[int, int], kinds: tuple[torch.dtype, torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    x = torch.ones(shape, dtype=kinds[0], device="meta")
    weight = torch.ones(shape[1], dtype=kinds[1], device="meta")
    assert "needs a GPU" in str(norms.obstacle(x, weight, None, 1e-5))
    monkeypatch.setattr(norms, "DEVICE", "meta")
    assert reason in str(norms.obstacle(x, weight, None, 1e-5))
    right = torch.ones(2, 4, dtype=torch.bfloat16, device="meta")
    assert norms.obstacle(right, right[0], None, 1e-5) is None
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    assert "autocast" in str(norms.obstacle(right, right[0], None, 1e-5))


def test_layer_norm_without_a_gpu_is_torchs() -> None:
    """Catches: no bias."""
    ours, theirs = LayerNorm(6), torch.nn.LayerNorm(6)
    theirs.bias.data.uniform_()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 6)
    assert torch.equal(ours(x), theirs(x))
    assert FORMS.choose(x, ours.weight, ours.bias, 1e-5).form == "reference"
