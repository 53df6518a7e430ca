"""Stepping on one CPU thread: the native engine against torch and onnxruntime, fp32 and int8.

A step of one recurrent layer, input included; then a language model of two LSTM layers (10,000 words, untied) that
writes by drawing from its softmax; each beside the time that reading as many bytes takes in the same run.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elman.bench.harness import compare, interleaved, show
from elman.compiler.cpu.step import CompiledStep, Runner, compile_step
from elman.generation.sampling import GenerationConfig, random_stream, sample
from elman.generation.stream import generate_tokens
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors

VOCABULARY, TOKENS = 10_000, 64
ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # onnx has the gates as i o f c, and z r h
REPEAT = {256: 50, 512: 10, 1024: 3}  # steps in one measurement: long against the clock


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    results = {}
    cases: dict[str, Callable[[], tuple[dict[str, Any], str]]] = {}
    for kind in ("lstm", "gru"):
        for size in REPEAT:
            cases[f"{kind} step, width {size}"] = partial(layer_variants, kind, size)
    for size in (256, 512):
        cases[f"language model, width {size}"] = partial(model_variants, size)
    for title, variants in cases.items():
        runs, against = variants()
        with torch.inference_mode():
            table = compare(interleaved(runs, rounds, clock=time.process_time), against)
        show(title, table, against)
        results[title] = {"against": against, "variants": table}
    return results


def layer_variants(kind: str, size: int) -> tuple[dict[str, Any], str]:
    """One step of a layer as wide as its input, repeated."""
    torch.manual_seed(0)
    theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](size, size).eval()
    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](size, size).eval()
    layer: Any = LAYERS[kind]
    ours = layer(layer.Config(hidden_size=size), size).eval()
    x = torch.randn(1, size)
    repeat = REPEAT[size]
    parts = 2 if kind == "lstm" else 1
    state = (torch.zeros(1, 1, size),) * parts
    short = tuple(part[0] for part in state)
    given = (lambda values: values) if kind == "lstm" else (lambda values: values[0])
    runs: dict[str, Any] = {
        f"torch nn.{kind.upper()}": lambda: [theirs(x.unsqueeze(0), given(state)) for _ in range(repeat)],
        f"torch nn.{kind.upper()}Cell": lambda: [cell(x, given(short)) for _ in range(repeat)],
    }
    for form in ("fp32", "int8"):
        session = onnx_session(recurrent_graph([theirs]), form)
        feed = {
            "x": x.view(1, 1, size).numpy(),
            **{f"s0_{n}": np.zeros((1, 1, size), np.float32) for n in range(parts)},
        }
        runs[f"onnxruntime {form}"] = lambda s=session, f=feed: [s.run(None, f) for _ in range(repeat)]
    for form in ("fp32", "int8"):
        program = compile_step(ours, form, x)
        runner = Runner(program, [part for _, part in tensors(ours.initial_state(1))])
        runs[f"native {form}"] = lambda r=runner: [r.step(x) for _ in range(repeat)]
        runs[f"reading the bytes, {form}"] = reading(program, repeat)
    return runs, "onnxruntime fp32"


def model_variants(size: int) -> tuple[dict[str, Any], str]:
    """Texts of some tokens, each drawn from the softmax of the one before."""
    torch.manual_seed(0)
    config = StackConfig.make({"hidden_size": size, "pattern": ["lstm", "lstm"], "tied_embeddings": False})
    model = LanguageModel(config, VOCABULARY).eval()
    embedding, head = nn.Embedding(VOCABULARY, size), nn.Linear(size, VOCABULARY)
    stack = nn.LSTM(size, size, num_layers=2).eval()

    def eager() -> None:
        token, state = torch.zeros(1, dtype=torch.long), None
        for _ in range(TOKENS):
            top, state = stack(embedding(token).unsqueeze(0), state)
            token = torch.multinomial(head(top[0]).softmax(-1), 1)[0]

    runs: dict[str, Any] = {"torch nn.LSTM, multinomial": eager}
    for engine, weights in (("torch", "fp32"), ("native", "fp32"), ("native", "int8")):
        settings = GenerationConfig(max_tokens=TOKENS, seed=1, stop_at_end=False, engine=engine, weights=weights)
        name = "elman, torch" if engine == "torch" else f"native {weights}"
        runs[name] = lambda s=settings: list(generate_tokens(model, [[]], s, 0))
    layers = [nn.LSTM(size, size) for _ in range(2)]
    for form in ("fp32", "int8"):
        session = onnx_session(recurrent_graph(layers, embedding, head), form)
        runs[f"onnxruntime {form}"] = lambda s=session: onnx_text(s, size)
    for form in ("fp32", "int8"):
        runs[f"reading the bytes, {form}"] = reading(compile_step(model, form), TOKENS)
    return runs, "torch nn.LSTM, multinomial"


def reading(program: CompiledStep, times: int) -> Callable[[], Any]:
    """The least that steps can take: a look at each byte of the packed weights."""
    numbers = torch.zeros_like(program.arena[: program.arena.nbytes // 64 * 64]).view(torch.float32)
    return lambda: [numbers.sum() for _ in range(times)]


def onnx_text(session: Any, size: int) -> None:
    random, token = random_stream(1, 0), 0
    state = {f"s{layer}_{part}": np.zeros((1, 1, size), np.float32) for layer in range(2) for part in range(2)}
    for _ in range(TOKENS):
        logits, *parts = session.run(None, {"x": np.array([[token]]), **state})
        state = dict(zip(state, parts, strict=True))
        token = int(sample(torch.from_numpy(logits).view(1, -1).double(), torch.tensor([random.random()]).double()))


def recurrent_graph(layers: list[Any], embedding: nn.Embedding | None = None, head: nn.Linear | None = None) -> Any:
    """An onnx model of one step: (1, 1, width) or a token goes in, states go in and out."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights, inputs, outputs = [], [], [], []
    size, last = layers[0].hidden_size, "x"

    def constant(name: str, tensor: Tensor) -> str:
        weights.append(numpy_helper.from_array(tensor.detach().contiguous().numpy(), name))
        return name

    if embedding is not None:
        nodes.append(helper.make_node("Gather", [constant("words", embedding.weight), "x"], ["vectors"]))
        last = "vectors"
    inputs.append(helper.make_tensor_value_info("x", *_input(TensorProto, size, embedding)))
    for number, layer in enumerate(layers):
        kind = type(layer).__name__
        names = [f"s{number}_{part}" for part in range(2 if kind == "LSTM" else 1)]

        def gates(tensor: Tensor, kind: str = kind) -> Tensor:
            return torch.cat([tensor.chunk(len(ORDER[kind]))[gate] for gate in ORDER[kind]])

        w = constant(f"w{number}", gates(layer.weight_ih_l0).unsqueeze(0))
        r = constant(f"r{number}", gates(layer.weight_hh_l0).unsqueeze(0))
        b = constant(f"b{number}", torch.cat([gates(layer.bias_ih_l0), gates(layer.bias_hh_l0)]).unsqueeze(0))
        more: dict[str, Any] = {} if kind == "LSTM" else {"linear_before_reset": 1}
        news = [f"n{name}" for name in names]
        nodes.append(
            helper.make_node(kind, [last, w, r, b, "", *names], [f"y{number}", *news], hidden_size=size, **more)
        )
        last = news[0]
        for name in names:
            shape = (TensorProto.FLOAT, [1, 1, size])
            inputs.append(helper.make_tensor_value_info(name, *shape))
            outputs.append(helper.make_tensor_value_info(f"n{name}", *shape))
    if head is not None:
        nodes.append(helper.make_node("MatMul", [last, constant("head", head.weight.t())], ["scores"]))
        nodes.append(helper.make_node("Add", ["scores", constant("bias", head.bias)], ["logits"]))
        outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, VOCABULARY]))
    graph = helper.make_graph(nodes, "step", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _input(kinds: Any, size: int, embedding: nn.Embedding | None) -> tuple[int, list[int]]:
    return (kinds.FLOAT, [1, 1, size]) if embedding is None else (kinds.INT64, [1, 1])


def onnx_session(model: Any, form: str) -> Any:
    import onnx
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path, rounded = Path(folder) / "step.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(path))
        if form == "int8":
            quantize_dynamic(str(path), str(rounded))
        place = rounded if form == "int8" else path
        return onnxruntime.InferenceSession(str(place), options, providers=["CPUExecutionProvider"])
