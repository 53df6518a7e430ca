"""Log-likelihoods that lm-eval (0.4.13) gets from `elman serve`, beside those of the same model in this process.

    python -m benchmarks.serving.lm_eval [RUN …]

RUN is a language model. Beside it, a GPT-2 and a Llama with random weights are written by transformers, imported, and
compared with lm-eval's own `hf` model too: on pairs of tokens, and on a task of its own, whose texts lm-eval encodes
by the server's tokenizer. lm-eval is no dependency: pip install 'lm_eval[api,hf]'.
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import elman
from benchmarks.reporting import write
from benchmarks.serving.__main__ import free_port, server
from benchmarks.serving.hub_models import sentences, write_model
from elman.evaluation.inference_mode import inference_mode
from elman.pipeline.importing import import_folder

PAIRS, QUESTIONS = 200, 60
Found = Sequence[tuple[float, bool]]
Pair = tuple[list[int], list[int]]


def pairs_of(model: Any, count: int) -> list[Pair]:
    """Contexts, which begin with the start of a text, and continuations: greedy, or sampled with a random end."""
    draw, found = random.Random(0), []
    for number in range(count):
        greedy = number % 2 == 0
        settings = {"temperature": 0.0} if greedy else {"seed": number}
        begin = "".join(draw.choices("abcdefgh ", k=4))
        (text,) = model.generate_batch([begin], max_tokens=30, **settings)
        tokens = [token for token in text.tokens if token != model.tokenizer.eos_id]
        tokens += [] if greedy and tokens else [draw.randrange(2, model.tokenizer.vocab_size)]
        cut = draw.randrange(len(tokens))
        found.append(
            ([model.tokenizer.start_id, *map(int, model.tokenizer.encode(begin)), *tokens[:cut]], tokens[cut:])
        )
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


def task(folder: Path) -> dict[str, Any]:
    """A task of lm-eval: which of two endings is the likelier one."""
    lines = sentences(2 * QUESTIONS, seed=2)
    rows = []
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        begin, _, end = first.rpartition(" ")
        rows.append({"begin": begin, "endings": [end, second.rpartition(" ")[2]], "right": 0})
    (folder / "endings.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {
        "task": "endings",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "endings.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{begin}}",
        "doc_to_choice": "{{endings}}",
        "doc_to_target": "{{right}}",
        "metric_list": [{"metric": "acc"}],
    }


def answers(model: Any, questions: dict[str, Any]) -> Found:
    """Log-likelihoods of all endings, and greedy flags, as lm-eval logs them."""
    from lm_eval import simple_evaluate

    found = simple_evaluate(model=model, tasks=[questions], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["endings"], key=lambda one: one["doc_id"])
    return [(float(value), flag) for one in samples for value, flag in one["filtered_resps"]]


def compare(run: Path, hub: Path | None, questions: dict[str, Any]) -> dict[str, Any]:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    model = elman.load(run, "cpu")
    pairs = pairs_of(model, PAIRS)
    requests = [(("", ""), *pair) for pair in pairs]
    results: dict[str, Any] = {"model": model.task.run_name(model.recipe.model), "pairs": len(pairs)}
    port = free_port()
    with server(["-m", "elman", "serve", str(run), "--no-token", "--port", str(port)], port):
        os.environ["OPENAI_API_KEY"] = "none"
        api = LocalCompletionsAPI(
            base_url=f"http://127.0.0.1:{port}/v1/completions", model=run.name, num_concurrent=8, max_length=512
        )
        results["tokenizer"] = api.tokenizer_backend
        served = api._loglikelihood_tokens(requests)
        asked = answers(api, questions) if hub else []
    results["served, against this process"] = compared(served, [in_process(model, *pair) for pair in pairs])
    if hub:
        from lm_eval.models.huggingface import HFLM

        own = HFLM(pretrained=str(hub), device="cpu", dtype="float32", batch_size=1)
        expected = own._loglikelihood_tokens(requests, disable_tqdm=True)
        results["served, against hf"] = compared(served, expected)
        results["task, against hf"] = compared(asked, answers(own, questions))
    return results


def compared(found: Found, expected: Found) -> dict[str, Any]:
    pairs = list(zip(found, expected, strict=True))
    return {
        "compared": len(pairs),
        "largest difference": max(abs(one[0] - other[0]) for one, other in pairs),
        "greedy flags that differ": sum(bool(one[1]) != bool(other[1]) for one, other in pairs),
        "greedy": sum(bool(other[1]) for _, other in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # there is nothing to download
    results: dict[str, Any] = {name: version(name) for name in ("lm_eval", "transformers")}
    with tempfile.TemporaryDirectory() as folder:
        questions = task(Path(folder))
        for run in options.runs:
            results[run.name] = compare(run, None, questions)
            print(results[run.name])
        for kind in ("gpt2", "llama"):
            hub = write_model(kind, Path(folder) / "hub" / kind)
            import_folder(hub, Path(folder) / kind)
            results[kind] = compare(Path(folder) / kind, hub, questions)
            print(results[kind])
    print(write("lm-eval", results))


if __name__ == "__main__":
    main()
