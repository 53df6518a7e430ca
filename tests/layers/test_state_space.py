"""S4 and S4D against their definitions: HiPPO's matrix, the sampled differential equation, and one long convolution."""

import math

import pytest
import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.layers.s4 import StateSpace, hippo, starting_frequencies
from elman.ops import taps


def build(name: str, size: int = 3, **settings) -> StateSpace:
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make({"state_size": 8, **settings}), size).double().eval()


def legs(size: int) -> Tensor:
    """HiPPO-LegS as its paper writes it."""
    n = torch.arange(size, dtype=torch.float64)
    lower = -(2 * n + 1).sqrt().outer((2 * n + 1).sqrt())
    return lower.tril(-1) - torch.diag(n + 1)


def both_of_each_pair(half: Tensor) -> Tensor:
    return torch.cat([half, half.conj()], -1)


def dense(layer: StateSpace) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and C of the first channel as full complex matrices, with both of each pair."""
    read = both_of_each_pair(layer._complex(layer.read)[0])
    diagonal = both_of_each_pair(torch.complex(-layer.log_rate.exp(), layer.frequency)[0]).diag()
    if layer.name == "s4d":
        return diagonal, torch.ones_like(read), read
    low_rank = both_of_each_pair(layer._complex(layer.low_rank)[0])
    return diagonal - low_rank.outer(low_rank.conj()), both_of_each_pair(layer._complex(layer.write)[0]), read


def test_diagonalized_hippo_has_the_same_kernel() -> None:
    """Catches: the low-rank part too large by √2; the skew part not halved."""
    size = 8
    found = hippo(size)
    rates = both_of_each_pair(torch.complex(torch.full((size // 2,), -0.5).double(), found.frequency))
    low_rank, write = both_of_each_pair(found.low_rank), both_of_each_pair(found.write)
    a = rates.diag() - low_rank.outer(low_rank.conj())
    first = write  # Krylov vectors of both have the same inner products with the write vector
    exact, plain = legs(size), (2 * torch.arange(size, dtype=torch.float64) + 1).sqrt()
    now = plain
    for _ in range(4):
        torch.testing.assert_close((write.conj() @ first).real, plain @ now, rtol=1e-9, atol=1e-9)
        first, now = a @ first, exact @ now


def test_frequencies_are_initialized_as_in_the_paper() -> None:
    assert starting_frequencies("lin", 6).tolist() == [0.0, math.pi, 2 * math.pi]
    torch.testing.assert_close(
        starting_frequencies("inv", 4), torch.tensor([4 / math.pi * 3, 4 / math.pi / 3], dtype=torch.float64)
    )
    eigenvalues = torch.linalg.eigvals(
        legs(8) + 0.5 * (plain := (2 * torch.arange(8.0).double() + 1).sqrt()).outer(plain)
    )
    torch.testing.assert_close(starting_frequencies("legs", 8), eigenvalues.imag.sort().values[4:])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("s4", {}), ("s4d", {"discretisation": "zoh"}), ("s4d", {"discretisation": "bilinear", "start": "lin"})],
)
def test_kernel_is_the_discretized_state_space(name: str, settings: dict) -> None:
    """y_k = 2 Re C Āᵏ B̄ by full matrices and a convolution by FFT. Catches: Woodbury's sign; no factor 2; B̄ twice."""
    layer = build(name, mixing="none", **settings)
    a, b, c = dense(layer)
    delta, eye = layer.log_delta.exp()[0], torch.eye(len(a), dtype=a.dtype)
    if layer.config.model_dump().get("discretisation") == "zoh":
        step = torch.linalg.matrix_exp(delta * a)
        write = torch.linalg.solve(a, (step - eye) @ b)
    else:
        step = torch.linalg.solve(eye - delta / 2 * a, eye + delta / 2 * a)
        write = torch.linalg.solve(eye - delta / 2 * a, delta * b)
    kernel, time = [], 150
    for _ in range(time):
        kernel.append((c @ write).real)
        write = step @ write
    x = torch.randn(2, time, 3, dtype=torch.float64)
    spectrum = torch.fft.rfft(torch.stack(kernel), 2 * time) * torch.fft.rfft(x[..., 0], 2 * time)
    expected = torch.fft.irfft(spectrum)[:, :time] + layer.skip[0] * x[..., 0]
    expected = torch.nn.functional.gelu(expected)
    torch.testing.assert_close(layer(x)[0][..., 0], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["s4", "s4d"])
@pytest.mark.parametrize("chunk", [1, 16, 64, 256])
def test_the_convolution_equals_the_recurrence_with_a_carried_state(name: str, chunk: int) -> None:
    """At real lengths. Catches: the state inside a chunk was moved on by one bit too few."""
    layer = build(name, chunk_size=chunk, state_size=16)
    x, state = torch.randn(3, 150, 3, dtype=torch.float64), torch.randn(3, 3, 8, 2, dtype=torch.float64)
    lengths = torch.tensor([150, 0, 77])
    outputs, final = layer(x, state, lengths)
    for row, length in enumerate(lengths.tolist()):
        now = state[[row]]
        for t in range(length):
            y, now = layer.step(x[[row], t], now)
            torch.testing.assert_close(outputs[[row], t], y, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(final[[row]], now, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["s4", "s4d"])
def test_in_float32_the_convolution_stays_close_to_exact_steps(name: str) -> None:
    """With the real size of state, and long: powers of A come from squaring."""
    exact = build(name, state_size=64)
    layer = build(name, state_size=64).float()
    x = torch.randn(1, 700, 3, dtype=torch.float64)
    assert (layer(x.float())[0] - exact(x)[0]).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["s4", "s4d"])
def test_half_the_step_size_fits_twice_the_sampling_rate(name: str) -> None:
    """The clock can be edited, and is what it says. Catches: the edited step size was not given back."""
    layer = build(name, mixing="none", min_delta=0.01, max_delta=0.02)
    time = torch.linspace(0, 3, 200, dtype=torch.float64)
    often = torch.sin(time * 4).view(1, -1, 1).expand(1, -1, 3)
    with taps.edit({"delta": lambda delta: delta / 2}):
        fine, _ = layer(often)
    coarse, _ = layer(often[:, ::2])
    assert (fine[:, ::2] - coarse).abs().max() < 0.1 * coarse.abs().max()
    assert (layer(often)[0] - fine).abs().max() > 0.1 * coarse.abs().max()


@pytest.mark.parametrize("name", ["s4", "s4d"])
def test_parameters_are_real_and_the_layer_can_be_built_without_memory(name: str) -> None:
    assert not any(parameter.is_complex() for parameter in build(name).parameters())
    with torch.device("meta"):
        assert LAYERS[name](LAYERS[name].Config(), 16).read.device.type == "meta"


def test_unusable_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match="chunk_size: chunk_size must be a power of two, like 32"):
        build("s4d", chunk_size=48)
    with pytest.raises(ConfigError, match="multiple of 2"):
        build("s4", state_size=5)
