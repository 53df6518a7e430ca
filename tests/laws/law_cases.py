"""What the laws are tried on: every registered layer, in every form that can run, on small random sequences."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from elman.cells import Cell
from elman.layers import LAYERS, SequenceLayer
from elman.ops.state import map_state, tensors
from elman.recurrence import FORMS, using

# Where the defaults leave something untried.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "rnn": [{}, {"nonlinearity": "relu", "orthogonal": True}],
    "gru": [{}, {"reset": "before"}, {"bias": False}],
    "lstm": [{}, {"bias": False}],
    "peephole": [{}, {"form": "full"}],
    "residual": [{}, {"form": "antisymmetric", "damping": 0.5}],
    "convolution": [{}, {"kernel_size": 2, "dilation": 3, "gated": True}, {"kernel_size": 1, "bias": False}],
    "window": [{}, {"context": 1}, {"context": 3, "direct": True, "bias": False}],
    "bidirectional": [{}, {"layer": {"gru": {"reset": "before"}}, "join": "sum"}, {"layer": "convolution"}],
    "recurrent": [{"cell": {"gru": {"reset": "before"}}, "num_layers": 2}, {"num_layers": 3}],
    "linear-attention": [
        {"num_heads": 2, "head_size": 2, "chunk_size": 3},
        {"num_heads": 1, "head_size": 3, "decay": "fixed"},
    ],
    "mamba": [{"state_size": 2}, {"expand": 1, "state_size": 3, "kernel_size": 1, "step_rank": 2, "bias": True}],
    "s4": [{"state_size": 4, "chunk_size": 4}, {"state_size": 2, "mixing": "none"}],
    "s4d": [
        {"state_size": 4, "chunk_size": 4},
        {"state_size": 2, "start": "inv", "discretisation": "bilinear", "mixing": "linear"},
    ],
    "attention": [
        {},
        {"num_heads": 4, "kv_heads": 2, "head_size": 2, "positions": "rotary", "bias": True, "context": 4},
        {"num_heads": 3, "head_size": 2, "positions": "alibi", "window": 2, "context": 8},
        {"num_heads": 2, "head_size": 3, "score": "additive", "context": 5},
        {"num_heads": 2, "head_size": 2, "score": "bilinear", "query_key_norm": True, "context": 12},
        {"projections": False, "score": "dot", "context": 1},
        {"projections": False, "score": "dot", "context": 6},
    ],
    "two-way-attention": [
        {},
        {"num_heads": 4, "kv_heads": 2, "head_size": 2, "positions": "rotary", "bias": True, "query_key_norm": True},
        {"num_heads": 3, "head_size": 2, "positions": "alibi", "window": 2},
        {"num_heads": 2, "head_size": 3, "score": "additive", "window": 3},
        {"num_heads": 2, "head_size": 2, "score": "bilinear"},
        {"projections": False, "score": "dot"},
    ],
    "positions": [{"kind": "learned", "context": 5}, {"kind": "sinusoidal"}],
    "feedforward": [{}, {"activation": "relu", "inner_size": 3, "bias": False}],
    "experts": [{"num_experts": 4}, {"num_experts": 3, "experts_per_token": 1, "expert": "feedforward"}],
}


class Case(NamedTuple):
    name: str
    settings: dict[str, Any]
    form: str

    def layer(self, input_size: int = 3, hidden_size: int = 4, seed: int = 0) -> SequenceLayer:
        """In float64 and without dropout, as all laws have it."""
        kind = LAYERS[self.name]
        sizes = {"hidden_size": hidden_size} if "hidden_size" in kind.Config.model_fields else {}
        torch.manual_seed(seed)
        return kind(kind.Config.make({**sizes, **self.settings}), input_size).double().eval()

    def running(self) -> AbstractContextManager[None]:
        return using(self.form)

    def __str__(self) -> str:
        settings = ",".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}({settings})-{self.form}"


def cases(causal: bool = True) -> list[Case]:
    """Of causal layers, or of those that see both sides, for which laws of their own hold."""
    found = []
    for name in LAYERS:
        for settings in SETTINGS.get(name, [{}]):
            layer = Case(name, settings, "auto").layer()
            if layer.causal != causal:
                continue
            cells = [module for module in layer.modules() if isinstance(module, Cell)]
            forms = ready_forms(cells[0]) if cells else ["auto"]
            forms = [form for form in forms if form != "newton"]  # never taken by itself; equal to the reference
            found += [Case(name, settings, form) for form in forms]
    return found


def ready_forms(cell: Cell) -> list[str]:
    """Those that need not be made for each cell, which takes long: these have laws of their own."""
    x = torch.zeros(1, 1, 3)
    return [name for name, form in FORMS.items() if form.device is None and not form.obstacle(cell, x, None)]


class Situation(NamedTuple):
    """A small sequence: its sizes, its rows' real lengths, a place to cut it, and the seed of its numbers."""

    batch: int
    time: int
    input_size: int
    hidden_size: int
    lengths: Tensor
    cut: int
    seed: int

    def layer(self, case: Case) -> SequenceLayer:
        return case.layer(self.input_size, self.hidden_size, self.seed)

    def x(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(self.batch, self.time, self.input_size, generator=generator, dtype=torch.float64)

    def state(self, layer: SequenceLayer) -> Any:
        """A state that has seen something: a dropped or forgotten one would show."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        before = torch.randn(self.batch, 3, self.input_size, generator=generator, dtype=torch.float64)
        with torch.no_grad(), using("reference"):
            return layer(before)[1]


@st.composite
def situations(draw: Callable[..., Any], shortest: int = 1) -> Situation:
    batch = draw(st.integers(1, 4))
    time = draw(st.integers(shortest, 9))
    lengths = draw(
        st.lists(st.sampled_from([0, 1, time - 1, time, draw(st.integers(0, time))]), min_size=batch, max_size=batch)
    )
    return Situation(
        batch,
        time,
        input_size=draw(st.integers(1, 5)),
        hidden_size=draw(st.integers(1, 5)),
        lengths=torch.tensor(lengths),
        cut=draw(st.integers(1, max(1, time - 1))),
        seed=draw(st.integers(0, 1000)),
    )


def walk(layer: SequenceLayer, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The whole sequence by single steps."""
    outputs = []
    for one in x.unbind(1):
        output, state = layer.step(one, state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


class Results(NamedTuple):
    outputs: Tensor
    state: Any
    gradients: dict[str, Tensor]


def results(
    layer: SequenceLayer,
    run: Callable[[SequenceLayer, Tensor, Any], tuple[Tensor, Any]],
    x: Tensor,
    state: Any,
    real: Tensor | None = None,
) -> Results:
    """Outputs, final state, and the gradients of input, initial state and parameters of a sum that weighs each."""
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    state = map_state(lambda part: part.detach().clone().requires_grad_(part.is_floating_point()), state)
    outputs, final = run(layer, x, state)
    if real is not None:
        outputs = outputs * real.unsqueeze(-1)
    parts = [outputs, *(part for _, part in tensors(final) if part.is_floating_point())]
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.dtype) for part in parts]
    weighed = [(part * weight).sum() for part, weight in zip(parts, weights, strict=True)]
    sum(weighed, start=0 * x.sum()).backward()  # where all rows are empty, nothing else may have a gradient
    named = {"x": x, **dict(tensors(state)), **dict(layer.named_parameters())}
    gradients = {name: part.grad for name, part in named.items() if part.requires_grad}
    # a parameter that some form does not reach has no gradient there; the others then must find zero
    gradients = {name: named[name].new_zeros(named[name].shape) if g is None else g for name, g in gradients.items()}
    return Results(outputs.detach(), map_state(Tensor.detach, final), {n: g.clone() for n, g in gradients.items()})


def real_positions(lengths: Tensor, time: int) -> Tensor:
    return torch.arange(time) < lengths.unsqueeze(1)


def assert_same(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Whole results, states or tensors, with the name of what differs."""
    if isinstance(found, Results):
        assert_same(found.outputs, expected.outputs, tolerance)
        assert_same(found.state, expected.state, tolerance)
        for name, gradient in expected.gradients.items():
            torch.testing.assert_close(
                found.gradients[name], gradient, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"d{n}: {m}"
            )
        return
    for (name, a), (_, b) in zip(tensors(found), tensors(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")
