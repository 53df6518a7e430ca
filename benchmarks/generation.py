"""Text generation on a GPU: CUDA graphs against eager torch steps, batch 1 and 64.

A timing covers a whole text: prompt, sampling, and the transfer of tokens to the host. Without a GPU small models run
the same code, as a test; their times say nothing about a GPU.
"""

import time
from typing import Any

import torch

from benchmarks.reporting import show
from elman.bench.harness import compare, interleaved
from elman.generation.engine import explain
from elman.generation.sampling import GenerationConfig
from elman.generation.stream import generate_tokens
from elman.models import LanguageModel, StackConfig

TRANSFORMER = [{"attention": {"positions": "rotary"}}, "swiglu"]
MODELS: dict[str, dict[str, Any]] = {
    "LSTM, 2 layers": {"pattern": ["lstm"], "num_layers": 2, "tied_embeddings": False},
    "Transformer, 6 blocks": {"pattern": TRANSFORMER, "num_layers": 12, "residual": True, "norm": "pre"},
    "Mamba, 6 layers": {"pattern": ["mamba"], "num_layers": 6, "residual": True, "norm": "pre"},
}
RULES: dict[str, dict[str, Any]] = {
    "drawn from all": {},
    "top-k 50, top-p 0.9": {"top_k": 50, "top_p": 0.9},
}


def measure(rounds: int) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    device, size, vocabulary, tokens = ("cuda", 512, 10_000, 64) if gpu else ("cpu", 16, 50, 20)
    results = {}
    for name, settings in MODELS.items():
        torch.manual_seed(0)
        model = LanguageModel(StackConfig.make({"hidden_size": size, **settings}), vocabulary).to(device).eval()
        for rows in (1, 64 if gpu else 3):
            for rule, chosen in RULES.items() if name.startswith("LSTM") else [next(iter(RULES.items()))]:
                title = f"{name}, width {size}, {rows} at a time, {rule}"
                results[title] = _measured(title, model, rows, tokens, chosen, rounds)
    return results


def _measured(
    title: str, model: LanguageModel, rows: int, tokens: int, chosen: dict[str, Any], rounds: int
) -> dict[str, Any]:
    runs: dict[str, Any] = {}
    for engine in ("torch", "captured"):
        config = GenerationConfig.make(
            {"max_tokens": tokens, "seed": 1, "stop_at_end": False, "engine": engine, **chosen}
        )
        runs[engine] = lambda c=config: list(generate_tokens(model, [[]] * rows, c, 0))
    began = time.perf_counter()
    runs["captured"]()
    first = time.perf_counter() - began
    table = compare(interleaved(runs, rounds), "torch")
    for row in table.values():
        row["tokens_per_second"] = rows * tokens / row["ms"] * 1e3
    show(title, table, "torch")
    speeds = ", ".join(f"{name} {row['tokens_per_second']:,.0f}" for name, row in table.items())
    print(f"  tokens per second: {speeds}; the first captured text took {first:.2f} s")
    how = explain(model, config, rows)
    return {"against": "torch", "variants": table, "first_text_seconds": first, "engine": how}
