"""One step of a recurrent model as an ONNX graph, run by onnxruntime on one thread, in float32 or int8."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

Weights = Literal["fp32", "int8"]
WEIGHTS: tuple[Weights, ...] = ("fp32", "int8")
# ONNX orders gates i o f c and z r h; torch i f g o, r z n
GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


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
    layers: list[Any], embedding: nn.Embedding | None = None, head: nn.Linear | None = None, scale: float = 1.0
) -> Any:
    """An ONNX model of one step: input (1, 1, width), or a token id with an embedding; states in and out.

    Without `head` the outputs are the new states only; with it, logits come first.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, outputs = [], [], []

    def constant(name: str, tensor: Tensor) -> str:
        constants.append(numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name))
        return name

    def floats(name: str, size: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, size])

    last = "x"
    if embedding is None:
        inputs = [floats("x", layers[0].input_size)]
    else:
        inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [1, 1])]
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
