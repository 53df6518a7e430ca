"""Steps of many rows at once: the native engine against torch and onnxruntime, 1, 8 and 64 rows, one and two threads.

A language model of two LSTM layers (10,000 words, width 512, untied). Beside each, torch's matrix products of the same
shapes: the limit of a step that computes its products as torch does. One thread is timed by processor time, which other
processes disturb less; two threads by wall-clock time.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.reporting import show
from elman.bench.harness import compare, interleaved
from elman.bench.peer_models import WEIGHTS, onnx_session, recurrent_graph
from elman.compiler.cpu.step import RowRunner, compile_step
from elman.models import LanguageModel, StackConfig

VOCABULARY, SIZE, LAYERS = 10_000, 512, 2
STEPS = {1: 20, 8: 10, 64: 3}  # per timing, by rows
PRODUCTS = "torch, matrix products alone"


def measure(rounds: int) -> dict[str, Any]:
    results = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        clock = time.process_time if threads == 1 else time.perf_counter
        for rows, steps in STEPS.items():
            title = f"{rows} rows, {threads} thread{'s' * (threads > 1)}"
            with torch.inference_mode():
                table = compare(interleaved(variants(rows, threads), rounds, clock=clock), PRODUCTS)
            for entry in table.values():
                entry["tokens_per_second"] = rows * steps / entry["ms"] * 1e3
            show(title, table, PRODUCTS)
            speeds = ", ".join(f"{name} {entry['tokens_per_second']:,.0f}" for name, entry in table.items())
            print(f"  tokens per second: {speeds}")
            results[title] = {"against": PRODUCTS, "variants": table}
    torch.set_num_threads(1)
    return results


def variants(rows: int, threads: int) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    steps = STEPS[rows]
    config = StackConfig.make({"hidden_size": SIZE, "pattern": ["lstm"] * LAYERS, "tied_embeddings": False})
    model = LanguageModel(config, VOCABULARY).eval()
    tokens = torch.arange(rows) % VOCABULARY
    embedding, head = nn.Embedding(VOCABULARY, SIZE), nn.Linear(SIZE, VOCABULARY)
    stack = nn.LSTM(SIZE, SIZE, num_layers=LAYERS).eval()
    state = (torch.zeros(LAYERS, rows, SIZE),) * 2

    def eager() -> None:
        here = state
        for _ in range(steps):
            top, here = stack(embedding(tokens).unsqueeze(0), here)
            head(top[0])

    shapes = [(SIZE, 4 * SIZE)] * (2 * LAYERS) + [(SIZE, VOCABULARY)]
    pairs = [(torch.randn(rows, inner), torch.randn(inner, columns)) for inner, columns in shapes]
    runs: dict[str, Callable[[], Any]] = {
        PRODUCTS: lambda: [torch.mm(a, b) for _ in range(steps) for a, b in pairs],
        "torch nn.LSTM": eager,
    }
    if threads == 1:  # the sessions have one thread
        layers = [nn.LSTM(SIZE, SIZE) for _ in range(LAYERS)]
        for form in WEIGHTS:
            session = onnx_session(recurrent_graph(layers, embedding, head, rows=rows), form)
            names = [f"s{layer}_{part}" for layer in range(LAYERS) for part in range(2)]
            feed = {name: np.zeros((1, rows, SIZE), np.float32) for name in names}
            feed["x"] = tokens.view(1, rows).numpy()
            runs[f"onnxruntime {form}"] = repeated(steps, session.run, None, feed)
    for form in WEIGHTS:
        runner = RowRunner(compile_step(model, form), threads)
        numbers = [runner.add(model.initial_state(1)) for _ in range(rows)]
        given = tokens.tolist()
        runs[f"native {form}"] = repeated(steps, runner.step, numbers, given)
    return runs


def repeated(times: int, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: [function(*arguments) for _ in range(times)]
