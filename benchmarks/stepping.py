"""Single steps on one CPU thread: the native engine (compiled C++) against torch and onnxruntime, fp32 and int8.

A step of one recurrent layer with its input projection; then sampling from a language model of two LSTM layers (10,000
words, untied). Beside each, the time to read the bytes of the weights: the memory-bandwidth limit.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.reporting import show
from elman.bench.harness import compare, interleaved
from elman.bench.peer_models import WEIGHTS, onnx_session, recurrent_graph
from elman.compiler.cpu.step import CompiledStep, Runner, compile_step
from elman.generation.sampling import GenerationConfig, random_stream, sample
from elman.generation.stream import generate_tokens
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors

VOCABULARY, TOKENS = 10_000, 64
REPEAT = {256: 50, 512: 10, 1024: 3}  # steps per timing, by width


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
    """One step of a layer with input size = hidden size, repeated."""
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
    for form in WEIGHTS:
        session = onnx_session(recurrent_graph([theirs]), form)
        feed = {
            "x": x.view(1, 1, size).numpy(),
            **{f"s0_{n}": np.zeros((1, 1, size), np.float32) for n in range(parts)},
        }
        runs[f"onnxruntime {form}"] = lambda s=session, f=feed: [s.run(None, f) for _ in range(repeat)]
    for form in WEIGHTS:
        program = compile_step(ours, form, x)
        runner = Runner(program, [part for _, part in tensors(ours.initial_state(1))])
        runs[f"native {form}"] = lambda r=runner: [r.step(x) for _ in range(repeat)]
        runs[f"reading the bytes, {form}"] = reading(program, repeat)
    return runs, "onnxruntime fp32"


def model_variants(size: int) -> tuple[dict[str, Any], str]:
    """Texts of TOKENS tokens, sampled from the softmax."""
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
    for form in WEIGHTS:
        session = onnx_session(recurrent_graph(layers, embedding, head), form)
        runs[f"onnxruntime {form}"] = lambda s=session: onnx_text(s, size)
    for form in WEIGHTS:
        runs[f"reading the bytes, {form}"] = reading(compile_step(model, form), TOKENS)
    return runs, "torch nn.LSTM, multinomial"


def reading(program: CompiledStep, times: int) -> Callable[[], Any]:
    """Lower bound of a step: reads every byte of the packed weights."""
    numbers = torch.zeros_like(program.arena[: program.arena.nbytes // 64 * 64]).view(torch.float32)
    return lambda: [numbers.sum() for _ in range(times)]


def onnx_text(session: Any, size: int) -> None:
    random, token = random_stream(1, 0), 0
    state = {f"s{layer}_{part}": np.zeros((1, 1, size), np.float32) for layer in range(2) for part in range(2)}
    for _ in range(TOKENS):
        logits, *parts = session.run(None, {"x": np.array([[token]]), **state})
        state = dict(zip(state, parts, strict=True))
        token = int(sample(torch.from_numpy(logits).view(1, -1).double(), torch.tensor([random.random()]).double()))
