"""The chunked cross-entropy equals its definition in value and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.ops import cross_entropy
from elman.ops.cross_entropy import cross_entropy_each, cross_entropy_reference, cross_entropy_sum


def example(positions, width, words, bias, dtype):
    torch.manual_seed(0)
    features = torch.randn(positions, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(words, width, dtype=dtype, requires_grad=True)
    offset = torch.randn(words, dtype=dtype, requires_grad=True) if bias else None
    return features, weight, offset, torch.randint(words, (positions,))


@given(st.integers(0, 9), st.integers(1, 5), st.integers(1, 7), st.booleans(), st.integers(1, 4))
def test_chunks_change_neither_value_nor_gradients(positions, width, words, bias, chunk):
    features, weight, offset, targets = example(positions, width, words, bias, torch.float64)
    wanted = [tensor for tensor in (features, weight, offset) if tensor is not None]
    expected = cross_entropy_reference(features, weight, offset, targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "CPU_LOGITS", chunk * words)
        found = cross_entropy_sum(features, weight, offset, targets)
        each = cross_entropy_each(features, weight, offset, targets)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(each.sum(), found.detach())
    ours, theirs = torch.autograd.grad(3 * found, wanted), torch.autograd.grad(3 * expected, wanted)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chunk", [2, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_vocabulary_padding_changes_nothing(monkeypatch, bias, chunk):
    """Catches: added words that had a bias of 0; gradients of added words that were not left out."""
    features, weight, offset, targets = example(7, 4, 10, bias, torch.float64)
    wanted = [tensor for tensor in (features, weight, offset) if tensor is not None]
    expected = cross_entropy_reference(features, weight, offset, targets)
    monkeypatch.setattr(cross_entropy, "ALIGNED", {"cpu": 8})
    monkeypatch.setattr(cross_entropy, "MIN_PADDED", 7)
    monkeypatch.setattr(cross_entropy, "CPU_LOGITS", chunk * 10)
    found = cross_entropy_sum(features, weight, offset, targets)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(cross_entropy_each(features, weight, offset, targets).sum(), expected.detach())
    for our, their in zip(torch.autograd.grad(found, wanted), torch.autograd.grad(expected, wanted), strict=True):
        torch.testing.assert_close(our, their)


def test_very_unlikely_targets_have_a_finite_loss():
    features, weight = torch.tensor([[1.0]]), torch.tensor([[500.0], [-500.0]])
    assert cross_entropy_sum(features, weight, None, torch.tensor([1])).item() == pytest.approx(1000)


def test_half_precision_gemms_accumulate_in_float32():
    features, weight, offset, targets = example(300, 16, 50, True, torch.float32)
    expected = cross_entropy_reference(features, weight, offset, targets)
    with torch.autocast("cpu", torch.bfloat16):
        found = cross_entropy_sum(features, weight, offset, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=0)
    (ours,) = torch.autograd.grad(found, weight)
    (theirs,) = torch.autograd.grad(expected, weight)
    assert (ours - theirs).norm() < 2e-2 * theirs.norm()


def test_a_second_backward_pass_is_an_error():
    features, weight, offset, targets = example(4, 3, 5, True, torch.float32)
    found = cross_entropy_sum(features, weight, offset, targets)
    found.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        found.backward()
