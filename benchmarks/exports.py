"""Exported C libraries: language models of every registered causal layer against torch, and their speed beside the
native engine, whose code they are.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.reporting import show
from elman.bench.harness import compare, interleaved
from elman.compiler.cpu.standalone import StepModel
from elman.compiler.cpu.step import History, Rules, Runner, compile_step
from elman.export.base import Weights
from elman.export.c import library_files
from elman.export.library import Library, compile_library
from elman.generation import GenerationConfig, generate
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.ops.state import tensors
from elman.tokenizers import train_tokenizer

TEXT, STEPS, TOKENS = 1000, 200, 200  # greedy tokens, compared steps, tokens of a timing
SIZES = {"lstm": (256, 512), "gru": (256, 512)}
TOKENIZER = train_tokenizer("byte", [])
SETTINGS = {"attention": {"context": 64, "num_heads": 4}}


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    causal = [name for name in LAYERS if LAYERS[name].causal]
    agreement = {name: agreement_of(name) for name in causal}
    for name, found in agreement.items():
        print(f"  {name:<20} {found}")
    speed = {}
    for kind, widths in SIZES.items():
        for width in widths:
            title = f"language model, {kind}, width {width}"
            with torch.inference_mode():
                table = compare(interleaved(variants(kind, width), rounds, clock=time.process_time), "native fp32")
            show(title, table, "native fp32")
            speed[title] = table
    return {"agreement": agreement, "speed": {"against": "native fp32", "tables": speed}}


def model_of(name: str, width: int) -> LanguageModel:
    torch.manual_seed(0)
    config = StackConfig.make({"hidden_size": width, "pattern": [{name: SETTINGS.get(name, {})}] * 2})
    model = LanguageModel(config, 257).eval()
    torch.nn.init.normal_(model.embedding.weight, std=0.3)  # else all tokens are equally probable
    return model


def exported(model: LanguageModel, weights: Weights = "fp32") -> Library:
    with tempfile.TemporaryDirectory() as aside:
        for name, data in library_files(StepModel(model), TOKENIZER, weights).items():
            Path(aside, name).parent.mkdir(exist_ok=True)
            Path(aside, name).write_bytes(data)
        library = compile_library(Path(aside), Path(aside, "library.so"))
        return Library(library, Path(aside, "model.bin"))


def agreement_of(name: str) -> dict[str, Any]:
    """Greedy and sampled text of a model of width 64 against torch, and the largest difference of log-probabilities."""
    model = model_of(name, 64)
    library, found = exported(model), {}
    for kind, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        rules: dict[str, Any] = {"temperature": temperature, "max_tokens": TEXT, "stop_at_end": False, "seed": 1}
        config = GenerationConfig.make({**rules, "engine": "torch"})
        (right,) = generate(model, TOKENIZER, [""], config)
        tokens = library.generate("", **rules).tokens
        found[kind] = next(
            (n for n, pair in enumerate(zip(tokens, right.tokens, strict=True)) if pair[0] != pair[1]), TEXT
        )
    worst, state, logits = 0.0, model.initial_state(1), library.reset()
    with torch.inference_mode():
        for token in [0, *(number * 37 % 256 + 1 for number in range(STEPS))]:
            logits = library.step(token) if token else logits  # the start token was read already
            expected, state = model.step(torch.tensor([token]), state)
            pair = torch.from_numpy(logits).double(), expected[0].double()
            worst = max(worst, float((pair[0].log_softmax(-1) - pair[1].log_softmax(-1)).abs().max()))
    library.close()
    return {"equal tokens": found, "of tokens": TEXT, "log-probabilities": worst}


def variants(kind: str, width: int) -> dict[str, Callable[[], Any]]:
    model, forms = model_of(kind, width), get_args(Weights)
    found = {f"native {weights}": native(model, weights) for weights in forms}
    return found | {f"C library {weights}": in_library(model, weights) for weights in forms}


def native(model: LanguageModel, weights: Weights) -> Callable[[], Any]:
    runner = Runner(compile_step(model, weights), [part for _, part in tensors(model.initial_state(1))])
    runner.step(torch.tensor([0]))
    rules, uniforms = Rules(257, temperature=0.0), torch.zeros(TOKENS).double()
    return lambda: runner.run(rules, History(rules), uniforms, False)


def in_library(model: LanguageModel, weights: Weights) -> Callable[[], Any]:
    library = exported(model, weights)
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": TOKENS, "stop_at_end": False}
    return lambda: library.generate(None, **settings)
