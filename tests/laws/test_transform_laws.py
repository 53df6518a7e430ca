"""torch.compile, torch.export and torch.func give what a stack gives by itself, for every registered layer."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

import elman
from elman.layers import LAYERS
from elman.models import ClassifierConfig
from elman.recurrence import explain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # by torch.compile itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # by torch.func itself
]
RECURRENT = ("lstm", "gru", "rnn")  # whose vendor kernels torch.compile must differentiate


@pytest.fixture(params=LAYERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def stack(name: str) -> elman.Stack:
    torch.manual_seed(0)
    settings = {"pattern": [name], "hidden_size": 8}
    return elman.Stack(ClassifierConfig.make(settings), 8).eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))


def gradients(stack: elman.Stack, outputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(outputs.square().sum(), [*stack.parameters()], allow_unused=True, materialize_grads=True)


def test_compiled(name: str, stack: elman.Stack, x: Tensor) -> None:
    """Catches torch's LSTM of oneDNN, whose compiled derivative fails."""
    torch._dynamo.reset()
    backend = "aot_eager" if name in RECURRENT else "eager"
    compiled = torch.compile(stack, backend=backend)(x)[0]
    torch.testing.assert_close(compiled, stack(x)[0])
    if any(True for _ in stack.parameters()):
        torch.testing.assert_close(gradients(stack, compiled), gradients(stack, stack(x)[0]), rtol=1e-4, atol=1e-5)


def test_exported(stack: elman.Stack, x: Tensor) -> None:
    """Catches values read for a shortcut, and scans that write into their outputs."""
    exported = torch.export.export(stack, (x,)).module()
    torch.testing.assert_close(exported(-x)[0], stack(-x)[0])


def test_transformed(stack: elman.Stack, x: Tensor) -> None:
    """`vmap` over rows, `grad` and `jvp`. Catches kernels with one hand-written derivative, and fused attention."""
    weights = dict(stack.named_parameters())

    def outputs(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(stack, weights, (x,))[0]

    whole = stack(x)[0]
    rows = vmap(lambda row: outputs(weights, row.unsqueeze(0)).squeeze(0), randomness="different")(x)
    torch.testing.assert_close(rows, whole, rtol=1e-4, atol=1e-5)
    if weights:
        found = grad(lambda weights: outputs(weights, x).square().sum())(weights)
        expected = dict(zip(weights, gradients(stack, whole), strict=True))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    stack, x, step = stack.double(), x.double(), 1e-6
    same, change = jvp(lambda x: stack(x)[0], (x,), (torch.ones_like(x),))
    torch.testing.assert_close(same, stack(x)[0])
    differences = (stack(x + step)[0] - stack(x - step)[0]) / (2 * step)
    torch.testing.assert_close(change, differences, rtol=1e-3, atol=1e-4)


def test_the_reason_is_told() -> None:
    layer = LAYERS["lstm"](LAYERS["lstm"].Config(hidden_size=4), 4)
    told = []
    vmap(lambda row: told.append(explain(layer.cell, row.unsqueeze(0))) or row)(torch.randn(2, 5, 4))
    assert told == ["reference: torch.func transforms plain operations only"]
