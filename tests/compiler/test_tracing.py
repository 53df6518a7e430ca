"""The tracer: what it notes gives the same numbers again, what it cannot note is refused, and it is quick to begin."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from processes import run_python
from torch import Tensor, fx

from elman.compiler.decompositions import DECOMPOSITIONS
from elman.compiler.tracing import trace


def replayed(graph: fx.Graph, *given: Tensor) -> list[Tensor]:
    return fx.Interpreter(fx.GraphModule({}, graph)).run(*given)


def in_place(x: Tensor) -> Tensor:
    y = x.tanh()
    y += 1
    y.mul_(x)
    return y


def filled(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y += x
    return y / 2


def parts_of_their_own(x: Tensor) -> Tensor:
    left, right = x.tanh().chunk(2, 1)
    left += right
    right *= left
    return left - right


FUNCTIONS = {
    "parts": parts_of_their_own,
    "a cell of torch": lambda x: torch.gru_cell(x, x, x.new_ones(18, 6), x.new_ones(18, 6) / 2),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer norm, affine": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[1], eps=0.1),
    "layer norm, two axes": lambda x: F.layer_norm(x, x.shape[-2:]),
    "softmax": lambda x: F.softmax(3 * x.T, 0).view(-1),
    "log softmax": lambda x: F.log_softmax(3 * x, -1),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(100 * x),
    "softplus, steep": lambda x: F.softplus(x, beta=2.5, threshold=1.0),
    "glu": lambda x: F.glu(x, 1),
    "split": lambda x: x.split(4, -1)[1] + x[:, :2],
    "stack": lambda x: torch.stack([x, 2 * x], -1),
    "root mean square": lambda x: F.rms_norm(x, x.shape[-1:]),
    "in place": in_place,
    "filled": filled,
    "picked": lambda x: x[torch.arange(2)],
}


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_computes_its_function(name: str, kind: torch.dtype) -> None:
    """Traced at other numbers. Catches: a GELU without its half; the unbiased variance; a softplus that overflows."""
    function = FUNCTIONS[name]
    x = torch.randn(4, 6, dtype=kind, generator=torch.Generator().manual_seed(0))
    graph = trace(function, torch.zeros_like(x))
    torch.testing.assert_close(replayed(graph, x)[0], function(x.clone()))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_uses_torchs_decompositions(kind: torch.dtype) -> None:
    """They are computed with as wide ones. Catches: ours, which lose digits."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(kind)
    graph = trace(F.silu, x)
    assert torch.equal(replayed(graph, x)[0], F.silu(x))


def test_every_decomposition_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: no function that splits."""
    tried = set()
    for operation, function in list(DECOMPOSITIONS.items()):

        def noted(*given: Any, operation: Any = operation, function: Any = function, **named: Any) -> Any:
            tried.add(operation)
            return function(*given, **named)

        monkeypatch.setitem(DECOMPOSITIONS, operation, noted)
    for function in FUNCTIONS.values():
        trace(function, torch.zeros(4, 6))
    assert tried == set(DECOMPOSITIONS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * float(x.max()),
        lambda x: x * sum(x[0].tolist()),
        lambda x: x * torch.from_numpy(x.numpy()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
    ],
)
def test_reading_tensor_values_is_rejected(function) -> None:
    """Catches: lists and arrays, which are no operations, were taken for constants."""
    with pytest.raises(ValueError, match="reads the value of a tensor"):
        trace(function, torch.zeros(4, 6))


def into_a_part(x: Tensor) -> Tensor:
    y = x.tanh()
    part = y[:, :3]
    part += 1
    return y


def under_a_view(x: Tensor) -> Tensor:
    y = x.tanh()
    seen = y.view(-1)
    y += 1
    return seen + 1


def at_places(x: Tensor) -> Tensor:
    y = x.tanh()
    y[:, 0] = 0
    return y


@pytest.mark.parametrize(
    "function",
    [
        into_a_part,
        under_a_view,
        at_places,
        lambda x: x.add_(1),
        lambda x: x.view(-1).zero_(),
        lambda x: torch.add(x, 1, out=x),
    ],
)
def test_in_place_writes_into_shared_memory_are_rejected(function) -> None:
    """The tensor keeps its values. Catches: aliases did not see what was written."""
    x = torch.ones(4, 6)
    with pytest.raises(ValueError, match=r"writes in place into a tensor (from outside|that is also read)"):
        trace(function, x)
    assert torch.equal(x, torch.ones(4, 6))


def test_one_tensor_passed_twice_is_two_inputs() -> None:
    x = torch.zeros(3)
    graph = trace(lambda x, y: x - y, x, x)
    assert replayed(graph, torch.full((3,), 5.0), torch.ones(3))[0].tolist() == [4, 4, 4]


BEGINNING = """
import sys, torch
from elman.cells import CELLS
from elman.layers import LAYERS
from elman.models.stack import on_meta
from elman.compiler.cpu.step import compile_step
from elman.compiler.cell_program import step_ir
for name in CELLS:
    assert not isinstance(step_ir(CELLS[name](CELLS[name].Config(hidden_size=8), 8)), str), name
for name in ("lstm", "attention", "swiglu", "feedforward", "mamba", "s4d", "experts", "convolution", "minlstm"):
    compile_step(LAYERS[name](LAYERS[name].Config.make({}), 16), "fp32", torch.zeros(1, 16))
on_meta(lambda: torch.nn.Embedding(3, 4))
print(sorted({"sympy", "torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_compiling_does_not_import_torchs_compiler() -> None:
    """That import takes a second. Catches: torch's own tracer; its broadcasting of shapes; initial values on meta."""
    done = run_python("-c", BEGINNING)
    assert done.stdout.split() == ["[]"], done.stdout + done.stderr[-2000:]
