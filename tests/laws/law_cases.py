"""Cases to check the laws on: every registered layer in every form that can run, and small random sequences."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from elman.cells import Cell
from elman.layers import LAYERS, SequenceLayer
from elman.layers.laws import Results, Trial, real_positions, results, walk
from elman.ops.state import tensors
from elman.recurrence import FORMS, using

__all__ = ["SETTINGS", "Case", "Results", "Situation", "assert_same", "cases", "ready_forms"]
__all__ += ["real_positions", "results", "situations", "walk"]

# Settings that the defaults leave untested.
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
        """In float64 and without dropout, as all laws require."""
        kind = LAYERS[self.name]
        sizes = {"hidden_size": hidden_size} if "hidden_size" in kind.Config.model_fields else {}
        torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds accelerators too and takes 2 ms
        return kind(kind.Config.make({**sizes, **self.settings}), input_size).double().eval()

    def running(self) -> AbstractContextManager[None]:
        return using(self.form)

    def __str__(self) -> str:
        settings = ",".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}({settings})-{self.form}"


def cases(causal: bool = True) -> list[Case]:
    """Of causal or of bidirectional layers."""
    found = []
    for name in LAYERS:
        for settings in SETTINGS.get(name, [{}]):
            layer = Case(name, settings, "auto").layer()
            if layer.causal != causal:
                continue
            cells = [module for module in layer.modules() if isinstance(module, Cell)]
            forms = ready_forms(cells[0]) if cells else ["auto"]
            forms = [form for form in forms if form != "newton"]  # runs on request only; equal to the reference
            found += [Case(name, settings, form) for form in forms]
    return found


def ready_forms(cell: Cell) -> list[str]:
    """Forms that need no compilation. Compiled forms have tests of their own."""
    x = torch.zeros(1, 1, 3)
    return [name for name, form in FORMS.items() if form.device is None and not form.obstacle(cell, x, None)]


class Situation(NamedTuple):
    """A small batch of sequences: sizes, real lengths of its rows, a position to cut at, and the seed of its values."""

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

    def trial(self, layer: SequenceLayer) -> Trial:
        x = self.x()
        return Trial(layer, x, 50 * torch.sin(100 * x), self.state(layer), self.lengths, self.cut)

    def state(self, layer: SequenceLayer) -> Any:
        """A state that has seen inputs: a dropped or forgotten one would show."""
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


def assert_same(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Results, states or tensors are equal; the error names the one that differs."""
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
