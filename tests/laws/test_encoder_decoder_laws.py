"""Decoders and cross-attention obey the laws of layers, with the source in their state.

Seen to fail: agreement by a step that fed back the stack's top instead of the output layer's mix, and by a step without
the summary; rows by a bridge that mixed rows; padding by a fed vector that went on behind a row's end, and by a source
whose padding was looked at.
"""

from typing import Any, NamedTuple

import pytest
import torch
from test_layer_laws import test_law  # noqa: F401  (applied here to the cases below)
from torch import Tensor, nn

from elman.layers.cross_attention import CrossAttention
from elman.models.encoder_decoder import Decoder, DecoderConfig
from elman.recurrence import using

VOCABULARY, SOURCE = 7, 3
ATTENTION: list[dict[str, Any]] = [
    {"num_heads": 2, "head_size": 2, "bias": True},
    {"num_heads": 4, "kv_heads": 2, "head_size": 2, "query_key_norm": True},
    {"projections": False, "score": "dot"},
    {"projections": False, "score": "bilinear"},
    {"projections": False, "score": "additive"},
]
TRANSFORMER = [{"attention": {"num_heads": 2, "head_size": 2, "context": 12}}, {"cross-attention": {"head_size": 2}}]
DECODERS: dict[str, dict[str, Any]] = {
    "the default": {},
    "by its first state alone": {"attention": None},
    "all ways at once": {"pattern": ["gru", "lstm"], "context": ["state", "input", "output"], "input_feeding": True},
    "summary as input": {"context": ["input"], "attention": None},
    "summary as output": {"context": ["output"], "attention": None, "tied_embeddings": False, "embedding_size": 2},
    "input feeding": {"pattern": ["rnn"], "input_feeding": True, "attention": {"projections": False, "score": "dot"}},
    "Transformer": {
        "pattern": [*TRANSFORMER, "feedforward"],
        "context": [],
        "attention": None,
        "positions": "sinusoidal",
        "residual": True,
        "norm": "pre",
    },
    "state space, two attention layers": {
        "pattern": [{"mamba": {"state_size": 2}}, {"cross-attention": {"head_size": 2}}, "mingru"],
        "attention": {"num_heads": 2, "head_size": 2},
    },
}


class OnTokens(nn.Module):
    """A decoder with the interface of a layer; all rows begin with the same source."""

    def __init__(self, decoder: Decoder, input_size: int, seed: int):
        super().__init__()
        self.decoder, self.input_size, self.output_size = decoder, input_size, decoder.vocab_size
        chance = torch.Generator().manual_seed(seed)
        self.source = torch.randn(1, 4, SOURCE, generator=chance, dtype=torch.float64)

    def initial_state(self, batch: int) -> Any:
        return self.decoder.begin(self.source.expand(batch, -1, -1), torch.full((batch,), 3))

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        return self.decoder(tokens_of(x), self.initial_state(len(x)) if state is None else state, lengths)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.decoder.step(tokens_of(x), state)


def tokens_of(x: Tensor) -> Tensor:
    return (100 * x[..., 0]).long().remainder(VOCABULARY)


class Looking(CrossAttention):
    """Begins with a source, so that there is something to attend to."""

    def initial_state(self, batch: int) -> Any:
        if batch == 0:
            return super().initial_state(batch)
        chance = torch.Generator().manual_seed(7)
        source = torch.randn(1, 4, self.input_size, generator=chance, dtype=torch.float64).expand(batch, -1, -1)
        return self.read(source.to(self.slopes.dtype), torch.arange(batch) % 5)


class DecoderCase(NamedTuple):
    what: str
    settings: dict[str, Any]

    def layer(self, input_size: int, hidden_size: int, seed: int) -> Any:
        torch.default_generator.manual_seed(seed)
        if self.what == "cross-attention":
            return Looking(CrossAttention.Config.make(self.settings), input_size).double().eval()
        config = DecoderConfig.make({"hidden_size": 4, **self.settings})
        return OnTokens(Decoder(config, VOCABULARY, SOURCE).double().eval(), input_size, seed)

    def running(self) -> Any:
        return using("auto")

    def __str__(self) -> str:
        return f"{self.what} {self.settings if self.what == 'cross-attention' else ''}"


CASES = [DecoderCase(*item) for item in DECODERS.items()] + [DecoderCase("cross-attention", s) for s in ATTENTION]


@pytest.fixture(params=CASES, ids=str, scope="module")
def case(request: pytest.FixtureRequest) -> DecoderCase:
    return request.param


def test_a_row_without_a_source_reads_nothing() -> None:
    """In the fused form and the reference; its gradients are finite."""
    layer = CrossAttention(CrossAttention.Config(num_heads=2), 4).double()
    x, source = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    for form in ("reference", "vendor"):
        with using(form):
            outputs, _ = layer(x, layer.read(source, torch.tensor([0, 2])))
            outputs.sum().backward()
        assert (outputs[0] == 0).all()
        assert (outputs[1] != 0).all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in layer.parameters())
