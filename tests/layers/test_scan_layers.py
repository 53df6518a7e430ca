"""Mamba, linear attention and state spaces: properties beyond the laws of all layers."""

import pytest
import torch
from operation_count import OperationCount, operations
from torch.nn import functional as F

from elman import recurrence
from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.layers.base import ScanLayer
from elman.layers.mamba import HUGGING_FACE
from elman.layers.s4 import StateSpace
from elman.ops import taps
from elman.ops.state import map_state, tensors

NAMES = [name for name in LAYERS if issubclass(LAYERS[name], ScanLayer) and "state" in LAYERS[name].sites]


def build(name: str, size: int = 8, **settings) -> ScanLayer:
    torch.manual_seed(0)
    return LAYERS[name](LAYERS[name].Config.make(settings), size).eval()


def test_there_are_scan_layers() -> None:
    assert {"s4", "s4d", "mamba", "linear-attention"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_declared_taps_are_the_taps_that_fire(name: str) -> None:
    """Catches: a site without a tap; a tap without a site."""
    layer = build(name)
    with taps.record("*") as recording:
        layer(torch.randn(2, 5, 8))
    assert set(recording.sites()) == set(layer.sites)
    assert all(layer.sites.values()), "each with its meaning"


@pytest.mark.parametrize("name", NAMES)
def test_edited_state_is_carried_on(name: str) -> None:
    """Nothing before it changes; without a past, what follows is what a fresh start gives. Catches: the untapped
    state was carried on."""
    layer = build(name)
    x = torch.randn(2, 6, 8)
    plain = layer(x)[0]
    with taps.edit({"state@2": 0.0}):
        edited, _ = layer(x)
    start = map_state(torch.zeros_like, layer.initial_state(2))
    if name == "mamba":  # the window of its convolution is not edited
        start = layer(x[:, :3])[1]._replace(memory=start.memory)
    torch.testing.assert_close(edited[:, :2], plain[:, :2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(edited[:, 3:], layer(x[:, 3:], start)[0], atol=1e-5, rtol=1e-4)
    assert (edited[:, 3] - plain[:, 3]).abs().max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_the_state_stays_in_float32(name: str) -> None:
    """In both forms, which agree as far as bfloat16 allows. Catches: the state's matrix products under autocast."""
    layer = build(name, size=16)
    x = torch.randn(2, 40, 16)
    exact, exact_state = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, state = layer(x)
        stepped, after = layer.step(x[:, 0], layer.initial_state(2))
    for _, part in (*tensors(state), *tensors(after)):
        assert part.dtype == torch.float32
    assert (outputs.float() - exact).abs().max() < 0.1 * exact.abs().max()
    assert (stepped.float() - exact[:, 0]).abs().max() < 0.1 * exact.abs().max()
    for (_, part), (_, whole) in zip(tensors(state), tensors(exact_state), strict=True):
        close = 1e-5 if isinstance(layer, StateSpace) else 0.05  # nothing in bfloat16 comes before a state space
        assert (part - whole).abs().max() < close * whole.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_in_bfloat16_trains_and_keeps_its_state_in_float32(name: str) -> None:
    layer = build(name).bfloat16()
    outputs, state = layer(torch.randn(2, 9, 8).bfloat16(), None, torch.tensor([9, 4]))
    outputs.float().sum().backward()
    assert outputs.dtype == torch.bfloat16
    assert {part.dtype for _, part in tensors(state)} == {torch.float32}
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())
    assert layer.step(torch.randn(2, 8).bfloat16(), state)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_explains_itself_and_can_be_counted_without_memory(name: str) -> None:
    layer = build(name)
    assert layer.explain(4, 16).startswith("chunked: ")
    with recurrence.using("reference"):
        assert layer.explain(4, 16) == "reference: the plain loop, as asked"
    with torch.device("meta"):
        twin = LAYERS[name](LAYERS[name].Config(), 8)
    assert sum(p.numel() for p in twin.parameters()) == sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_has_its_shape(name: str) -> None:
    layer = build(name)
    outputs, state = layer(torch.zeros(0, 5, 8))
    assert outputs.shape == (0, 5, 8)
    assert all(len(part) == 0 for _, part in tensors(state))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [None, torch.tensor([200])])
def test_state_does_not_keep_other_tensors_in_memory(name: str, lengths) -> None:
    """RaceResults in the first version: the final state was a view of all states."""
    with torch.no_grad():
        _, state = build(name)(torch.randn(1, 256, 8), None, lengths)
    assert all(part.untyped_storage().nbytes() == part.nbytes for _, part in tensors(state))


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_mamba_equals_the_hugging_face_implementation(bias: bool) -> None:
    """With random weights: outputs, and gradients of the weights. Catches: gate and input exchanged; write and read
    exchanged; the convolution one step late; no skip."""
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    from transformers import MambaConfig

    torch.manual_seed(1)
    config = MambaConfig(
        hidden_size=24, state_size=5, conv_kernel=3, expand=2, time_step_rank=3, use_bias=bias, use_conv_bias=bias
    )
    theirs = modeling.MambaMixer(config, layer_idx=0).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = build("mamba", 24, state_size=5, kernel_size=3, step_rank=3, bias=bias, convolution_bias=bias)

    def ours_of(name: str) -> str:
        first, *rest = name.split(".")
        return ".".join([HUGGING_FACE[first], *rest])

    ours.load_state_dict({ours_of(name): value for name, value in theirs.state_dict().items()})
    x = torch.randn(2, 33, 24)
    expected, found = theirs(x), ours(x)[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    for name, parameter in theirs.named_parameters():
        largest = parameter.grad.abs().max().item()
        torch.testing.assert_close(
            ours.get_parameter(ours_of(name)).grad, parameter.grad, rtol=1e-4, atol=1e-5 * largest
        )


def test_mamba_step_sizes_are_initialized_within_bounds() -> None:
    """Catches: the bias was the step size itself, not its inverse softplus."""
    layer = build("mamba", 64, min_delta=0.01, max_delta=0.5)
    sizes = F.softplus(layer.step_size.bias)
    assert 0.0099 < sizes.min() < 0.02
    assert 0.3 < sizes.max() < 0.501


def test_heads_that_do_not_divide_the_width_are_rejected_with_a_remedy() -> None:
    with pytest.raises(
        ConfigError, match="hidden_size 10 does not split into 4 heads; set num_heads to one of 1, 2, 5"
    ):
        build("linear-attention", 10)
    assert build("linear-attention", 10, head_size=3).output_size == 10


def test_fixed_decays_are_those_of_retention() -> None:
    layer = build("linear-attention", 8, decay="fixed")
    with taps.record("decay") as recording:
        layer(torch.randn(1, 2, 8))
    torch.testing.assert_close(recording["decay"][0, 0], 1 - 2.0 ** -torch.arange(5, 9))


EDITS = {"state": "state@2", "delta": "delta@1:3", "decay": "decay@2", "output": "output@1"}


@pytest.mark.parametrize(
    ("name", "site"), [(name, site) for name in NAMES for site in EDITS if site in LAYERS[name].sites]
)
def test_editing_states_of_a_sequence_equals_editing_each_step(name: str, site: str) -> None:
    """What is changed stays changed for the steps after it. Catches the state tapped after the whole walk."""
    layer, x, edit = build(name), torch.randn(2, 5, 8), {EDITS[site]: 0.25}
    with torch.no_grad(), taps.edit(edit):
        whole, last = layer(x)
    state, steps = layer.initial_state(2), []
    with torch.no_grad(), taps.edit(edit):
        for now in x.unbind(1):
            y, state = layer.step(now, state)
            steps.append(y)
        torch.testing.assert_close(whole, torch.stack(steps, 1))
        for (_, one), (_, other) in zip(tensors(last), tensors(state), strict=True):
            torch.testing.assert_close(one, other)
    with torch.no_grad():
        assert not torch.allclose(whole, layer(x)[0])


@pytest.mark.parametrize("name", NAMES)
def test_parallel_scan_takes_far_fewer_operations_than_stepping_and_linear_work(name: str) -> None:
    """Without gradients. Catches a loop in Python, and work that grows with the square of the length."""
    layer = build(name, size=64)

    def stepped(x: torch.Tensor) -> None:
        state = layer.initial_state(1)
        for now in x.unbind(1):
            _, state = layer.step(now, state)

    def cost(time: int) -> OperationCount:
        return operations(lambda: layer(torch.randn(1, time, 64)))

    with torch.no_grad():
        short, long = cost(1024), cost(2048)
        assert 64 * operations(lambda: stepped(torch.randn(1, 32, 64))).calls > 50 * long.calls
    assert long.elements < 2.2 * short.elements
