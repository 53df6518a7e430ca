"""The linear recurrence: the chunked form equals the definition, whatever the decays, shapes and lengths."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operation_count import OperationCount, operations
from torch import Tensor

from elman import recurrence
from elman.errors import ConfigError
from elman.ops import scan, taps
from elman.ops.scan import chunked, linear_scan, linear_scan_chunked, linear_scan_reference

KINDS = {"real": torch.float64, "complex": torch.complex128}


@pytest.fixture(params=["short chunks", "as on a GPU", "as it is"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short sequences in several stretches of several chunks, with a rest at the end."""
    if request.param == "short chunks":
        monkeypatch.setattr(chunked, "CPU_STEPS", 3)
        monkeypatch.setattr(chunked, "CPU_MIN_CHUNKS", 2)
        monkeypatch.setattr(chunked, "CPU_ELEMENTS", 24)
    elif request.param == "as on a GPU":
        pieces = chunked._pieces
        monkeypatch.setattr(chunked, "_pieces", lambda like: pieces(torch.empty(like.shape, device="meta")))


def draws(shape: tuple[int, ...], kind: torch.dtype, decay: str = "full", seed: int = 0) -> list[Tensor]:
    """Decay, inputs and initial state for inputs of such a shape."""
    batch, steps, *width = shape
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=kind, generator=generator)

    form = {
        "full": (batch, steps, *width),
        "constant": width,
        "per step": (batch, steps, *[1] * len(width)),
        "first row": (1, steps, *width),
    }[decay]
    sizes = normal(*form)
    # between far too small, exactly 0, and a bit over 1
    decays = (
        sizes
        / sizes.abs()
        * torch.tensor([1e-30, 0.0, 0.5, 0.999, 1.0, 1.01], dtype=torch.float64)[
            torch.randint(6, form, generator=generator)
        ]
    )
    return [decays, normal(batch, steps, *width), normal(batch, *width)]


def everything(run, tensors: list[Tensor], lengths: Tensor | None) -> list[Tensor]:
    """Values and gradients of a sum that weighs each position."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    history, final = run(*leaves, lengths)
    generator = torch.Generator().manual_seed(9)
    parts = [history, final]
    exact = torch.promote_types(history.dtype, torch.float64)
    weights = [torch.randn(part.shape, dtype=exact, generator=generator) for part in parts]
    sum((part * weight.to(part.dtype)).real.sum() for part, weight in zip(parts, weights, strict=True)).backward()
    return [history.detach(), final.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("kind", KINDS)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40)),
    width=st.sampled_from([(2,), (), (2, 3), (1,)]),
    decay=st.sampled_from(["full", "constant", "per step", "first row"]),
    seed=st.integers(0, 1000),
    ragged=st.booleans(),
)
def test_the_chunked_form_equals_the_definition(kind, *, shape, width, decay, seed, ragged) -> None:
    """Catches: chunks began at the state of the next; no conjugate in the gradient; the decay's gradient taken from
    the state after the step; the next stretch began at the wrong state."""
    batch, steps = shape
    tensors = draws((*shape, *width), KINDS[kind], decay, seed)
    lengths = torch.randint(0, steps + 1, (batch,), generator=torch.Generator().manual_seed(seed)) if ragged else None
    found = everything(linear_scan_chunked, tensors, lengths)
    expected = everything(linear_scan_reference, tensors, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("decay", [0.0, 1e-20, 0.5, 0.9999, 1.0])
def test_it_is_stable_in_float32(decay: float) -> None:
    """Against the definition in float64. Catches: cumulative products divided by each other (nan at 1e-20)."""
    x = torch.randn(2, 5000, 8, generator=torch.Generator().manual_seed(0))
    keep = torch.full((1,), decay)
    tensors = [keep, x, torch.ones(2, 8)]
    found = everything(linear_scan_chunked, tensors, None)
    expected = everything(linear_scan_reference, [tensor.double() for tensor in tensors], None)
    for mine, exact in zip(found, expected, strict=True):
        scale = exact.abs().max().clamp(min=1)
        assert (mine - exact).abs().max() / scale < 2e-5


def test_the_definition_is_the_equation() -> None:
    history, final = linear_scan_reference(
        torch.tensor([[2.0, 3.0, 5.0]]), torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([7.0])
    )
    assert history.tolist() == [[15.0, 45.0, 224.0]]
    assert final.tolist() == [224.0]


@pytest.mark.parametrize("run", [linear_scan_reference, linear_scan_chunked])
def test_the_final_state_is_the_one_after_the_last_real_position(run) -> None:
    """Catches: rows of length 0 got the first state; lengths off by one."""
    history, final = run(torch.tensor(2.0), torch.ones(4, 3), torch.full((4,), 7.0), torch.tensor([0, 1, 2, 3]))
    assert history[0].tolist() == [15.0, 31.0, 63.0]
    assert final.tolist() == [7.0, 15.0, 31.0, 63.0]


@pytest.mark.parametrize("run", [linear_scan_reference, linear_scan_chunked])
def test_an_empty_sequence_or_batch_does_not_change_the_state(run) -> None:
    for batch, steps in ((2, 0), (0, 3), (0, 0)):
        history, final = run(torch.ones(4), torch.zeros(batch, steps, 4), torch.ones(batch, 4))
        assert history.shape == (batch, steps, 4)
        assert torch.equal(final, torch.ones(batch, 4))


@pytest.mark.parametrize("run", [linear_scan_reference, linear_scan_chunked])
def test_half_precision_is_computed_in_float32(run) -> None:
    half = torch.bfloat16
    history, final = run(torch.ones(4, dtype=half), torch.ones(1, 600, 4, dtype=half), torch.zeros(1, 4, dtype=half))
    assert history.dtype == final.dtype == torch.float32
    assert final.tolist() == [[600.0] * 4]


def test_a_form_can_be_requested_and_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for name, form in list(scan.FORMS.items()):
        monkeypatch.setitem(
            scan.FORMS, name, form._replace(run=lambda *given, name=name: (taken.append(name), given[1:3])[1])
        )
    tensors = torch.rand(4), torch.rand(2, 5, 4), torch.rand(2, 4)
    assert scan.FORMS.explain(tensors[1]) == "chunked: chunks in parallel, in torch"
    linear_scan(*tensors)
    with recurrence.using("reference"):
        assert scan.FORMS.explain(tensors[1]) == "reference: the plain loop, as asked"
        linear_scan(*tensors)
    with taps.record("here"):
        assert scan.FORMS.explain(tensors[1]) == "reference: a recorder is listening"
        linear_scan(*tensors)
        taps.tap("here", tensors[1])
    with recurrence.using("kernel"), pytest.raises(ConfigError, match=r"kernel form of the scan cannot run: .* GPU"):
        linear_scan(*tensors)
    assert taken == ["chunked", "reference", "reference"]


@given(
    batch=st.integers(1, 3),
    steps=st.integers(0, 9),
    decay=st.sampled_from(["full", "constant", "per step"]),
    ragged=st.booleans(),
    form=st.sampled_from(["chunked", "reference"]),
)
def test_a_reverse_scan_is_the_scan_of_each_reversed_row(batch, steps, decay, ragged, form) -> None:
    """Catches: padding was walked through; the final state taken from the end."""
    decays, inputs, initial = draws((batch, steps, 2), torch.float64, decay)
    lengths = torch.tensor([steps // 2, steps, 0])[:batch] if ragged else torch.full((batch,), steps)
    with recurrence.using(form):
        history, final = linear_scan(decays, inputs, initial, lengths if ragged else None, reverse=True)
    decays = decays.expand(inputs.shape)
    for row, length in enumerate(lengths.tolist()):
        turned = decays[row : row + 1, :length].flip(1), inputs[row : row + 1, :length].flip(1)
        states, last = linear_scan_reference(*turned, initial[row : row + 1])
        torch.testing.assert_close(history[row, :length], states[0].flip(0))
        torch.testing.assert_close(final[row], last[0])


@pytest.mark.parametrize("shape", [(2, 4), (2, 2), (3, 3), (2,), (2, 1, 3)])
def test_an_initial_state_of_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    """Catches: one that is too short, behind which a kernel would read on."""
    with pytest.raises(ConfigError, match=r"inputs of shape \(2, 5, 3\) needs an initial state of shape \(2, 3\), not"):
        linear_scan(torch.rand(2, 5, 3), torch.rand(2, 5, 3), torch.rand(shape))


def test_inputs_are_not_modified() -> None:
    tensors = draws((2, 300, 3), torch.float64)
    kept = [tensor.clone() for tensor in tensors]
    everything(linear_scan_chunked, tensors, None)
    torch.testing.assert_close(tensors, kept, rtol=0, atol=0)


def test_it_trains_in_far_fewer_operations_than_the_loop_and_linear_work() -> None:
    """The loop makes six per step. Catches a loop in Python, and work that grows with the square of the length."""

    def cost(run, time: int) -> OperationCount:
        tensors = [tensor.requires_grad_() for tensor in (torch.rand(4, time, 64), torch.randn(4, time, 64))]
        weights = torch.randn(4, time, 64)
        return operations(lambda: run(*tensors, torch.zeros(4, 64))[0].backward(weights))

    short, long = (cost(linear_scan_chunked, time) for time in (1024, 2048))
    assert cost(linear_scan_reference, 2048).calls > 12 * long.calls
    assert long.elements < 2.2 * short.elements
