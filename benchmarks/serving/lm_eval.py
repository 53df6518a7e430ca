"""Log-likelihoods that lm-eval (0.4.13) gets from `elman serve`, beside those of the same model in this process.

    python -m benchmarks.serving.lm_eval RUN [--hub FOLDER]

RUN is a language model; FOLDER the Hugging Face folder that it was imported from, which lm-eval's own `hf` model then
reads too. Contexts and continuations are cut out of texts of the run's vocabulary at random. lm-eval is no dependency:
pip install 'lm_eval[api]'.
"""

import argparse
import asyncio
import os
import random
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import elman
from benchmarks.reporting import write
from benchmarks.serving.__main__ import free_port, server
from elman.evaluation.inference_mode import inference_mode

PAIRS = 200


def pairs_of(model: Any, count: int) -> list[tuple[list[int], list[int]]]:
    """Contexts, which begin with the start of a text, and continuations, half of which are likely."""
    draw, found = random.Random(0), []
    for number in range(count):
        text = model.generate_batch([""], max_tokens=40, seed=number)[0].tokens
        tokens = [token for token in text if token != model.tokenizer.eos_id] + [
            draw.randrange(2, model.tokenizer.vocab_size)
        ]
        cut = draw.randrange(len(tokens))
        found.append(([model.tokenizer.start_id, *tokens[:cut]], tokens[cut:]))
    return found


def in_process(model: Any, context: list[int], rest: list[int]) -> tuple[float, bool]:
    """Log-likelihood of the continuation, and whether it is what greedy decoding gives."""
    tokens = torch.tensor([[*context, *rest]])
    with inference_mode(model.model):
        state = model.model.initial_state(1)
        logits, _ = model.model(tokens, state, torch.tensor([tokens.shape[1]]))
    values = logits[0, len(context) - 1 : -1].double().log_softmax(-1)
    right = torch.tensor(rest)
    return float(values.gather(1, right[:, None]).sum()), bool((values.argmax(-1) == right).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--hub", type=Path)
    options = parser.parse_args()
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    model = elman.load(options.run, "cpu")
    pairs = pairs_of(model, PAIRS)
    expected = [in_process(model, *pair) for pair in pairs]
    requests = [(("", ""), *pair) for pair in pairs]
    results: dict[str, Any] = {"lm_eval": version("lm_eval"), "pairs": len(pairs), "run": repr(model).partition(",")[0]}
    port = free_port()
    with server(["-m", "elman", "serve", str(options.run), "--no-token", "--port", str(port)], port):
        os.environ["OPENAI_API_KEY"] = "none"
        api = LocalCompletionsAPI(
            base_url=f"http://127.0.0.1:{port}/v1/completions",
            model=options.run.name,
            num_concurrent=8,
            max_length=1024,
        )
        served = api._loglikelihood_tokens(requests)
    results["served"] = compared(served, expected)
    if options.hub:
        from lm_eval.models.huggingface import HFLM

        own = HFLM(pretrained=str(options.hub), device="cpu", dtype="float32", batch_size=1)
        results["hf"] = compared(served, own._loglikelihood_tokens(requests, disable_tqdm=True))
    print(results)
    with tempfile.TemporaryDirectory():
        print(write("lm-eval", results))


def compared(found: Any, expected: Any) -> dict[str, Any]:
    pairs = list(zip(found, expected, strict=True))
    return {
        "largest difference": max(abs(one[0] - other[0]) for one, other in pairs),
        "greedy flags that differ": sum(bool(one[1]) != bool(other[1]) for one, other in pairs),
        "greedy": sum(bool(other[1]) for _, other in pairs),
    }


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    main()
