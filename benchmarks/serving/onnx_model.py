"""An LSTM language model as an ONNX graph: token ids and a state to logits after the last token, and the next state."""

import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic


def write_lstm(path: Path, vocabulary: int, width: int, layers: int) -> None:
    """With random weights: the time of a step does not depend on them."""
    draw = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(draw.normal(0, 0.05, shape).astype(np.float32), name)

    weights = [weight("embedding", vocabulary, width), weight("output", width, vocabulary), weight("bias", vocabulary)]
    nodes = [helper.make_node("Gather", ["embedding", "tokens"], ["x0"])]
    nodes += [
        helper.make_node("Split", [name], [f"{name}{n}" for n in range(layers)], num_outputs=layers, axis=0)
        for name in ("hidden", "cell")
    ]
    for n in range(layers):
        weights += [
            weight(f"w{n}", 1, 4 * width, width),
            weight(f"r{n}", 1, 4 * width, width),
            weight(f"b{n}", 1, 8 * width),
        ]
        inputs = [f"x{n}", f"w{n}", f"r{n}", f"b{n}", "lengths", f"hidden{n}", f"cell{n}"]
        nodes.append(helper.make_node("LSTM", inputs, [f"y{n}", f"h{n}", f"c{n}"], hidden_size=width))
        nodes.append(helper.make_node("Squeeze", [f"y{n}", "one"], [f"x{n + 1}"]))
    for name in ("h", "c"):
        nodes.append(helper.make_node("Concat", [f"{name}{n}" for n in range(layers)], [f"next_{name}"], axis=0))
    nodes.append(helper.make_node("Squeeze", [f"h{layers - 1}", "zero"], ["last"]))
    nodes.append(helper.make_node("Gemm", ["last", "output", "bias"], ["logits"]))
    weights += [numpy_helper.from_array(np.array([value]), name) for name, value in (("zero", 0), ("one", 1))]
    state: list[str | int | None] = [layers, "batch", width]
    given = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["time", "batch"]),
        helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in ("hidden", "cell")),
    ]
    found = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", vocabulary])]
    found += [helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in ("next_h", "next_c")]
    graph = helper.make_graph(nodes, "lstm", given, found, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def quantize(path: Path, target: Path) -> None:
    """Weights in 8 bits, inputs quantized as they come."""
    logging.disable(logging.WARNING)  # its advice to preprocess a model of images
    quantize_dynamic(str(path), str(target))
    logging.disable(logging.NOTSET)
