"""A recurrent language model for other libraries: plain PyTorch modules with the same weights, and one step as an ONNX
graph, run by onnxruntime on one thread, in float32 or int8.
"""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.layers.torch_weights import to_torch
from elman.models import LanguageModel

CELLS: dict[str, Any] = {"LSTM": torch.lstm_cell, "GRU": torch.gru_cell, "tanh": torch.rnn_tanh_cell}
CELLS["relu"] = torch.rnn_relu_cell
Weights = Literal["fp32", "int8"]
WEIGHTS: tuple[Weights, ...] = ("fp32", "int8")
# ONNX orders gates i o f c and z r h; torch i f g o, r z n
GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


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
    if isinstance(reason := layer.cell.vendor(), str):
        raise NoCounterpart(reason)
    return to_torch([layer])


def _copy(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().clone())


class OnnxModel:
    """A TorchModel as an onnxruntime session that carries its state: one token in, logits out."""

    def __init__(self, model: Any, weights: Weights):
        graph = recurrent_graph(list(model.layers), model.embedding, model.head, model.scale)
        self.session = onnx_session(graph, weights)
        shapes = [(entry.name, entry.shape) for entry in self.session.get_inputs() if entry.name != "x"]
        self.zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes}
        self.state = dict(self.zeros)

    def step(self, token: int) -> Tensor:
        """Logits (vocabulary) after one more token."""
        logits, *parts = self.session.run(None, {"x": np.array([[token]]), **self.state})
        self.state = dict(zip(self.state, parts, strict=True))
        return torch.from_numpy(logits).view(-1)

    def tokens(self) -> Iterator[int]:
        """Samples tokens without end, one session call for each."""
        token, self.state = 0, dict(self.zeros)
        while True:
            token = int(torch.multinomial(self.step(token).softmax(-1), 1))
            yield token


def recurrent_graph(
    layers: list[Any],
    embedding: nn.Embedding | None = None,
    head: nn.Linear | None = None,
    scale: float = 1.0,
    rows: int = 1,
) -> Any:
    """An ONNX model of one step: input (1, rows, width), or token ids with an embedding; states in and out.

    Without `head` the outputs are the new states only; with it, logits come first.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, outputs = [], [], []

    def constant(name: str, tensor: Tensor) -> str:
        constants.append(numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name))
        return name

    def floats(name: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, size])

    last = "x"
    if embedding is None:
        inputs = [floats("x", layers[0].input_size)]
    else:
        inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [1, rows])]
        nodes.append(helper.make_node("Gather", [constant("embedding", embedding.weight * scale), "x"], ["vectors"]))
        last = "vectors"
    for number, layer in enumerate(layers):
        operator, size = type(layer).__name__, layer.hidden_size
        states = [f"s{number}_{part}" for part in range(2 if operator == "LSTM" else 1)]

        def gates(tensor: Tensor, operator: str = operator) -> Tensor:
            return torch.cat([tensor.chunk(len(GATES[operator]))[gate] for gate in GATES[operator]])

        weights = [constant(f"w{number}", gates(layer.weight_ih_l0).unsqueeze(0))]
        weights += [constant(f"r{number}", gates(layer.weight_hh_l0).unsqueeze(0)), ""]
        if layer.bias:
            biases = torch.cat([gates(layer.bias_ih_l0), gates(layer.bias_hh_l0)])
            weights[-1] = constant(f"b{number}", biases.unsqueeze(0))
        options: dict[str, Any] = {"linear_before_reset": 1} if operator == "GRU" else {}
        if operator == "RNN":
            options = {"activations": [layer.nonlinearity.capitalize()]}
        new = [f"n{name}" for name in states]
        operands, results = [last, *weights, "", *states], [f"y{number}", *new]
        nodes.append(helper.make_node(operator, operands, results, hidden_size=size, **options))
        last = new[0]
        inputs += [floats(name, size) for name in states]
        outputs += [floats(name, size) for name in new]
    if head is not None:
        bias = torch.zeros(head.out_features) if head.bias is None else head.bias
        nodes.append(helper.make_node("MatMul", [last, constant("head", head.weight.t())], ["scores"]))
        nodes.append(helper.make_node("Add", ["scores", constant("bias", bias)], ["logits"]))
        outputs.insert(0, floats("logits", head.out_features))
    graph = helper.make_graph(nodes, "step", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def onnx_session(model: Any, weights: Weights) -> Any:
    """An onnxruntime session on one CPU thread; int8 quantizes the weights dynamically."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path, quantized = Path(folder) / "step.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(path))
        if weights == "int8":
            logging.disable(logging.WARNING)  # its advice to preprocess a model of images
            quantize_dynamic(str(path), str(quantized))
            logging.disable(logging.NOTSET)
        chosen = quantized if weights == "int8" else path
        return onnxruntime.InferenceSession(str(chosen), options, providers=["CPUExecutionProvider"])
