"""Tokens per second of `generate` of transformers, for models with as many parameters as the LSTM (about 14 million).

python -m benchmarks.serving.transformers_peer gpt2|mamba ROWS SECONDS THREADS
"""

import sys
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

PROMPT, NEW = 10, 40  # tokens: the means of the load


def build(kind: str) -> Any:
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=10_000, n_positions=128, n_embd=512, n_layer=3, n_head=8))
    return MambaForCausalLM(MambaConfig(vocab_size=10_000, hidden_size=512, num_hidden_layers=5))


def main() -> None:
    kind, rows, seconds, threads = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build(kind).eval()
    print(f"{sum(part.numel() for part in model.parameters()):,} parameters", file=sys.stderr)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": True, "top_k": 0, "pad_token_id": 0}

    def work() -> int:
        prompt = torch.randint(1, 10_000, (rows, PROMPT))
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options).shape[1] - PROMPT

    with torch.inference_mode():
        work()
        began, tokens = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            tokens += rows * work()
    print(tokens / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
