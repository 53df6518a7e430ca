"""Cost of a layer in multiplications: counted while it runs, and by the formulas in its traits."""

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from elman.layers import LAYERS, SequenceLayer
from elman.models.stack import count_parameters
from elman.ops.state import tensors
from elman.registry import Traits

WIDTH, LENGTH = 256, 1024  # of the costs in tables
SIGNS = {"·": "*", "−": "-", "²": "**2", "³": "**3"}
FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max, "log2": math.log2}
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


class Cost(NamedTuple):
    """Multiplications per token at batch size 1, elements of the state of a row, and parameters."""

    training: float  # forward and backward
    stepping: float | None  # None without a step form
    state: int
    parameters: int | None  # None for counts of n-grams


def standard(name: str, width: int = WIDTH, input_size: int = 0) -> SequenceLayer:
    """A registered layer with its defaults; layers without `hidden_size` are as wide as their input."""
    kind: Any = LAYERS[name]
    own = "hidden_size" in kind.Config.model_fields
    config = kind.Config.make({"hidden_size": width} if own else {})
    return kind(config, input_size if own and input_size else width)


def measure(layer: SequenceLayer, length: int) -> Cost:
    """Counted in float64, where no fused kernel hides the products of the sequence and step forms."""
    layer = layer.double()
    x = torch.randn(1, length, layer.input_size, dtype=torch.float64, requires_grad=True)
    training = count(lambda: layer(x)[0].sum().backward()) / length
    stepping = None
    if layer.causal:
        with torch.no_grad():
            first, rest = x.detach().split([1, length - 1], 1)
            _, state = layer(rest)
            stepping = count(lambda: layer.step(first[:, 0], state))
    return Cost(training, stepping, state_size(layer), count_parameters(layer))


def count(run: Callable[[], Any]) -> int:
    """Multiplications of matrices, by torch's FLOP counter, and of elements."""
    from torch.utils.flop_counter import FlopCounterMode

    aten = torch.ops.aten
    counted: dict[Any, Any] = dict.fromkeys((aten.mul, aten.mul_, aten.addcmul, aten.div, aten.div_), _elementwise)
    counted[aten.convolution_backward] = _convolution_backward
    with FlopCounterMode(display=False, custom_mapping=counted) as counter, sdpa_kernel(SDPBackend.MATH):
        run()
    return counter.get_total_flops() // 2


def stated(layer: Any, length: int) -> Cost:
    """By the formulas in the traits of the layer, or of the n-gram model."""
    training, state = evaluate(layer, "training", length), evaluate(layer, "state", length)
    stepping = None if _traits(layer).stepping.startswith("none") else evaluate(layer, "stepping", length)
    return Cost(training, stepping, int(state), count_parameters(layer))


def evaluate(layer: Any, trait: str, length: int = LENGTH) -> float:
    """The value of one formula; its variables are attributes of the layer, its cell or their settings."""

    def variable(name: str) -> float:
        if name in ("training", "stepping", "state"):
            return evaluate(layer, name, length)
        if name == "inside":
            return sum(evaluate(inner, trait, length) for inner in _inside(layer))
        known = {"input": "input_size", "width": "output_size"}
        for place in (layer, getattr(layer, "cell", None), getattr(layer, "config", None)):
            value = length if name == "length" else getattr(place, known.get(name, name), None)
            if isinstance(value, int | float):
                return value
        where = f"{type(layer).__name__}.traits.{trait}"
        raise AssertionError(f"{where} uses {name!r}, which is no attribute of the layer and none of its settings")

    text = getattr(_traits(layer), trait).partition(";")[0].strip()
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    return _value(ast.parse(text, mode="eval").body, variable)


def state_size(layer: Any) -> int:
    return sum(part.numel() for _, part in tensors(layer.initial_state(1)))


def _value(node: ast.expr, variable: Callable[[str], float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return variable(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, variable), _value(right, variable))
        case ast.Call(func=ast.Name(id=name), args=parts) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(part, variable) for part in parts))
    raise AssertionError(
        f"a formula has numbers, variables, + − · / ² ³ and {', '.join(FUNCTIONS)}, not {ast.dump(node)}"
    )


def _traits(layer: Any) -> Traits:
    name = type(layer).__name__
    assert layer.traits is not None, f"{name} has no traits: give it `traits: ClassVar = Traits(idea=..., ...)`"
    return layer.traits


def _inside(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, SequenceLayer):
            yield child
        else:
            yield from _inside(child)


def _elementwise(*operands: Any, out_val: Tensor, **options: Any) -> int:
    """A complex product takes four real ones."""
    complex_ones = sum(isinstance(part, Tensor) and part.is_complex() for part in operands[:2])
    return 2 * out_val.numel() * (1, 2, 4)[complex_ones]


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any, out_val: Any) -> int:
    """As much as the forward pass for each of input and weights; torch's own count ignores groups."""
    return 2 * gradient.numel() * weight[0].numel() * sum(others[-1][:2])


_elementwise._get_raw = _convolution_backward._get_raw = True  # type: ignore[attr-defined]
