"""The selective scan and linear attention equal their definitions, however they are cut."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.ops import selective
from elman.ops.forms import using
from elman.ops.linear_attention import linear_attention, linear_attention_reference
from elman.ops.lti_scan import Dense, Diagonal, System, invariant_scan, invariant_scan_reference


def compare(run, judge, given) -> None:
    found = []
    for form in (run, judge):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        outputs, final = form(*leaves)
        weights = torch.linspace(-1, 2, outputs.numel(), dtype=outputs.dtype).view(outputs.shape)
        ((outputs * weights).sum() + (final**2).sum()).backward()
        found.append([outputs.detach(), final.detach(), *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@given(time=st.integers(1, 20), states=st.sampled_from([1, 40, 100, 2**20]), seed=st.integers(0, 100))
def test_the_selective_scan_is_its_equation_for_any_tiling_of_time(time: int, states: int, seed: int) -> None:
    """Catches: each stretch began at zero; the input was not multiplied by the step size."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def running(form):
        return lambda x, rate, initial, delta, write, read, skip, gate: form(
            x, selective.Selection(delta, write, read), rate, initial, skip, gate
        )

    given = [normal(2, time, 3), -normal(3, 4).exp(), normal(2, 3, 4), normal(2, time, 3).exp(), *normal(2, 2, time, 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selective.chunked, "CPU_STATES", states)
        compare(running(selective.selective_scan), running(selective.chunked.reference), [*given, normal(3), given[0]])


def test_the_selective_scan_is_the_equation() -> None:
    """One channel, one number, two steps, by hand: half of 4 stays and 3 · 2 · 10 comes; then nothing moves."""
    x, delta = torch.tensor([[[2.0], [7.0]]]), torch.tensor([[[3.0], [0.0]]])
    chosen = selective.Selection(delta, torch.tensor([[[10.0], [1.0]]]), torch.tensor([[[1.0], [0.5]]]))
    rate, initial = torch.tensor([[0.5]]).log() / 3, torch.tensor([[[4.0]]])
    for form in selective.FORMS.that_can_run(x):
        with using(form):
            outputs, final = selective.selective_scan(x, chosen, rate, initial)
            torch.testing.assert_close(outputs, torch.tensor([[[62.0], [31.0]]]))
            torch.testing.assert_close(final, torch.tensor([[[62.0]]]))
            outputs, _ = selective.selective_scan(x, chosen, rate, initial, torch.ones(1), torch.zeros(1, 2, 1) + 100)
            torch.testing.assert_close(outputs, torch.tensor([[[6400.0], [3800.0]]]))


@given(time=st.integers(1, 20), chunk=st.sampled_from([1, 3, 8, 64]), seed=st.integers(0, 100), fast=st.booleans())
def test_chunked_linear_attention_is_its_definition(time: int, chunk: int, seed: int, fast: bool) -> None:
    """With decays so strong that their products vanish, too. Catches: the diagonal left out; decays of a chunk from
    its start instead of to its end; state after instead of before the chunk."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    log_decay = -normal(2, time, 3).exp() * (300 if fast else 0.1)
    given = [normal(2, time, 3, 4), normal(2, time, 3, 4), normal(2, time, 3, 5), log_decay, normal(2, 3, 4, 5)]
    compare(lambda *tensors: linear_attention(*tensors, chunk=chunk), linear_attention_reference, given)


@given(time=st.integers(1, 20), chunk=st.sampled_from([1, 2, 8]), dense=st.booleans(), ragged=st.booleans())
def test_a_time_invariant_scan_is_its_definition(time: int, chunk: int, dense: bool, ragged: bool) -> None:
    """Catches: the write vector with its sign turned."""
    torch.manual_seed(time)
    kind = {"dtype": torch.float64}
    transition = torch.randn(3, 4, 4, **kind) / 4 if dense else torch.randn(3, 2, dtype=torch.complex128) / 2
    tensors = [transition, torch.randn(3, 4, **kind), torch.randn(3, 4, **kind), torch.randn(2, time, 3, **kind)]
    lengths = torch.tensor([time // 2, 0]) if ragged else None

    def running(form):
        def run(transition, write, read, inputs, initial):
            system = System((Dense if dense else Diagonal)(transition), write, read)
            outputs, final = form(system, inputs, initial, lengths, chunk)
            return outputs, final

        return run

    compare(*map(running, (invariant_scan, invariant_scan_reference)), [*tensors, torch.randn(2, 3, 4, **kind)])


def test_linear_attention_is_finite_in_float32_whatever_the_decays() -> None:
    """Catches: queries multiplied and keys divided by the decays since the chunk began."""
    log_decay = torch.tensor([0.0, -1e-7, -3.0, -200.0]).expand(1, 130, 4).clone().requires_grad_()
    parts = [torch.randn(1, 130, 4, 8) for _ in range(3)]
    outputs, final = linear_attention(*parts, log_decay, torch.zeros(1, 4, 8, 8))
    (outputs.sum() + final.sum()).backward()
    assert all(torch.isfinite(tensor).all() for tensor in (outputs, final, log_decay.grad))
