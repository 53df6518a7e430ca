"""A million steps of every causal layer, of n-grams and of the compiled step: is memory use constant?

    python -m benchmarks.streaming --steps 1000000

Each runs in its own process on one thread, with a small width, since only growth matters. The state of a model is the
tuple of its layers' states, so the result holds for stacks too.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.reporting import write
from elman.batches import TokenStore
from elman.corpus.document import Document
from elman.generation import GenerationConfig, generate_tokens
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.models.ngram import NGram, NGramConfig
from elman.tokenizers import train_tokenizer

WIDTH, LETTERS, MARKS = 32, "abcdefgh", (10**3, 10**4, 10**5, 10**6)
SETTINGS: dict[str, dict[str, Any]] = {"attention": {"context": 64}}  # full early: what comes after would be growth
ALLOWED = 1.0  # megabytes between the second mark and the last: the C library keeps pages as it likes


# Language models that write in machine code, in 8 bits where the name says so.
NATIVE: dict[str, list[Any]] = {
    "native lstm": ["lstm", "lstm"],
    "native int8 lstm": ["lstm", "lstm"],
    "native attention": [{"attention": {"context": 64}}, "experts"],
}


def names() -> list[str]:
    """Every layer that can step, the model that is counted, and models in machine code."""
    return [*(name for name in LAYERS if LAYERS[name].causal), "ngram", *NATIVE]


def build(name: str) -> tuple[Any, Tensor]:
    """Something that steps, and inputs for it, to be taken round and round."""
    torch.manual_seed(0)
    if name == "ngram":
        return counted(), torch.randint(1, len(LETTERS) + 1, (4096, 1))
    kind: Any = LAYERS[name]
    return kind(kind.Config.make(SETTINGS.get(name)), WIDTH).eval(), torch.randn(4096, 1, WIDTH)


def counted() -> NGram:
    draw = random.Random(0)
    texts = ["".join(draw.choices(LETTERS, k=200)) for _ in range(100)]
    tokenizer = train_tokenizer("character", texts)
    model = NGram(NGramConfig(order=3), tokenizer.vocab_size)
    with tempfile.TemporaryDirectory() as place:
        list(model.fit(TokenStore.build(map(Document, texts), tokenizer, place, "text")))
    return model.eval()


def outputs(name: str, steps: int) -> Iterator[Any]:
    """What each step gives."""
    if name in NATIVE:
        yield from written(name, steps)
        return
    model, inputs = build(name)
    state = model.initial_state(1)
    with torch.inference_mode():
        for step in range(steps):
            output, state = model.step(inputs[step % len(inputs)], state)
            yield output


def written(name: str, steps: int) -> Iterator[float]:
    torch.manual_seed(0)
    config = StackConfig.make({"hidden_size": 128, "pattern": NATIVE[name]})
    weights: Any = "int8" if "int8" in name else "fp32"
    settings = GenerationConfig(max_tokens=steps, stop_at_end=False, engine="native", weights=weights, seed=0)
    for (choice,) in generate_tokens(LanguageModel(config, 1000).eval(), [[]], settings, eos_id=0):
        assert choice is not None
        yield choice.log_prob


def stream(name: str, marks: tuple[int, ...]) -> dict[str, Any]:
    """Megabytes in memory at each mark, how many were added since the second, and steps in a second."""
    megabytes = {}
    began = time.perf_counter()
    for step, output in enumerate(outputs(name, marks[-1]), 1):
        if step in marks:
            megabytes[step] = resident()
            assert not torch.as_tensor(output).isnan().any(), f"{name}: after {step} steps the output is not a number"
    speed = marks[-1] / (time.perf_counter() - began)
    return {"megabytes": megabytes, "growth": megabytes[marks[-1]] - megabytes[marks[1]], "steps_per_second": speed}


def resident() -> float:
    """Megabytes of this process that are in memory now, not the most that ever were."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=MARKS[-1], help="the last mark (default: %(default)s)")
    parser.add_argument("--only", nargs="+", help="these names (default: all)")
    parser.add_argument("--here", help="one name, in this process, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    marks = (*(mark for mark in MARKS if mark < options.steps), options.steps)
    if options.here:
        print(json.dumps(stream(options.here, marks)))
        return
    results = {}
    for name in options.only or names():
        alone = [sys.executable, "-m", "benchmarks.streaming", "--here", name, "--steps", str(options.steps)]
        results[name] = found = json.loads(subprocess.run(alone, capture_output=True, text=True, check=True).stdout)
        levels = ", ".join(f"{float(value):.1f}" for value in found["megabytes"].values())
        print(f"{name:<18} {levels} MB at {marks}; {found['steps_per_second']:,.0f} steps/s", flush=True)
        written = write("streaming", {"width": WIDTH, "models": results})  # each time: hours may follow
    print(written)
    grown = [name for name, found in results.items() if found["growth"] > ALLOWED]
    raise SystemExit(f"memory grew by more than {ALLOWED} MB: {', '.join(grown)}" if grown else 0)


if __name__ == "__main__":
    main()
