"""A recurrent language model rebuilt from plain PyTorch modules (nn.LSTM, nn.GRU, nn.RNN) with the same weights."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.models import LanguageModel

MODULES: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}
CELLS: dict[str, Any] = {"LSTM": torch.lstm_cell, "GRU": torch.gru_cell, "tanh": torch.rnn_tanh_cell}
CELLS["relu"] = torch.rnn_relu_cell


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

    def initial_state(self) -> list[Any]:
        """Zeros for `step` at batch 1: (h, c) of an LSTM, else h."""
        weight = self.embedding.weight
        zeros = [weight.new_zeros(1, layer.hidden_size) for layer in self.layers]
        return [(h, h) if isinstance(layer, nn.LSTM) else h for layer, h in zip(self.layers, zeros, strict=True)]

    def step(self, token: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """One step by nn.LSTMCell's function, and so on: nn.LSTM rearranges its weights at every call on a CPU."""
        x, new = self.embedding(token) * self.scale, []
        for layer, state in zip(self.layers, states, strict=True):
            cell = CELLS[getattr(layer, "nonlinearity", type(layer).__name__)]
            after = cell(x, state, *layer.parameters())
            x = after[0] if isinstance(after, tuple) else after
            new.append(after)
        return self.head(x), new


def torch_tokens(model: TorchModel, device: torch.device) -> Iterator[int]:
    """Samples tokens without end, one step for each."""
    token, states = torch.zeros(1, dtype=torch.long, device=device), model.initial_state()
    while True:
        with torch.inference_mode():
            logits, states = model.step(token, states)
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
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
    if not hasattr(layer, "cell"):
        raise NoCounterpart(f"PyTorch has no recurrent module for {type(layer).__name__}")
    call = layer.cell.vendor()
    if isinstance(call, str):
        raise NoCounterpart(call)
    options: dict[str, Any] = {"batch_first": True, "bias": len(call.weights) == 4}
    options |= {"nonlinearity": call.kernel.removeprefix("rnn_")} if call.kernel.startswith("rnn") else {}
    made = MODULES[call.kernel](layer.cell.input_size, layer.cell.hidden_size, **options)
    with torch.no_grad():
        for parameter, weight in zip(made.parameters(), call.weights, strict=True):
            parameter.copy_(weight)
    return made


def _copy(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().clone())
