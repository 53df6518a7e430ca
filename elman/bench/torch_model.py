"""A recurrent language model rebuilt from plain PyTorch modules (nn.LSTM, nn.GRU, nn.RNN) with the same weights."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.models import LanguageModel

MODULES: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


class NoCounterpart(Exception):
    """Plain PyTorch or ONNX has no module for this model; the message says why."""


class TorchModel(nn.Module):
    """Embedding, one recurrent module per layer, and a linear output layer, as one writes them with torch alone."""

    def __init__(self, model: Any):
        super().__init__()
        _require_plain_stack(model)
        self.dropout, self.scale, self.vocab_size = model.config.dropout, model.scale, model.vocab_size
        self.embedding = nn.Embedding.from_pretrained(model.embedding.weight.detach().clone(), freeze=False)
        self.layers = nn.ModuleList(_module(block.layer) for block in model.stack.layers)
        bias = model.output_bias is not None
        self.head = nn.Linear(model.stack.output_size, model.vocab_size, bias)
        self.head.weight = self.embedding.weight if model.output is None else _copy(model.output_weight)
        if bias:
            self.head.bias = _copy(model.output_bias)
        self.to(model.embedding.weight.device)

    def forward(self, tokens: Tensor, states: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        """Logits (batch, time, vocabulary) and the new state of every layer."""
        x, new = self.embedding(tokens) * self.scale, []
        for layer, state in zip(self.layers, states or [None] * len(self.layers), strict=True):
            x, after = layer(F.dropout(x, self.dropout, self.training), state)
            new.append(after)
        return self.head(F.dropout(x, self.dropout, self.training)), new


def torch_tokens(model: TorchModel, device: torch.device) -> Iterator[int]:
    """Samples tokens without end, one forward call for each."""
    token, states = torch.zeros(1, 1, dtype=torch.long, device=device), None
    while True:
        with torch.inference_mode():
            logits, states = model(token, states)
            token = torch.multinomial(logits[0].softmax(-1), 1)
        yield int(token)


def _require_plain_stack(model: Any) -> None:
    if not isinstance(model, LanguageModel):
        raise NoCounterpart(f"PyTorch has no module for {type(model).__name__} models")
    stack: Any = model.stack
    extras = {"residual": any(block.residual for block in stack.layers)}
    extras["norm"] = stack.top_norm is not None or any(block.norm is not None for block in stack.layers)
    extras |= {"positions": stack.positions is not None, "embedding_norm": stack.bottom_norm is not None}
    if used := [name for name, there in extras.items() if there]:
        raise NoCounterpart(f"PyTorch has no recurrent module with {' and '.join(used)}")


def _module(layer: Any) -> nn.Module:
    """The layer as nn.LSTM, nn.GRU or nn.RNN with copies of its weights."""
    call = (
        layer.cell.vendor() if hasattr(layer, "cell") else f"PyTorch has no recurrent module for {type(layer).__name__}"
    )
    if isinstance(call, str):
        raise NoCounterpart(call)
    options = {"nonlinearity": call.kernel.removeprefix("rnn_")} if call.kernel.startswith("rnn") else {}
    made = MODULES[call.kernel](
        layer.cell.input_size, layer.cell.hidden_size, batch_first=True, bias=len(call.weights) == 4, **options
    )
    with torch.no_grad():
        for parameter, weight in zip(made.parameters(), call.weights, strict=True):
            parameter.copy_(weight)
    return made


def _copy(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().clone())
