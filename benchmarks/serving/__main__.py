"""Tokens per second and time to the first token of `elman serve`, beside peers on the same machine, taking turns.

    python -m benchmarks.serving --rounds 3

The model is an LSTM of two layers, 512 wide, over 10,000 words. Peers: the same model in onnxruntime behind the same
web framework with static batches, and `generate` of transformers with a GPT-2 and a Mamba of the same size, in its own
process without a server.
"""

import argparse
import asyncio
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.reporting import write
from benchmarks.serving.load import run_load

VOCABULARY, WIDTH, LAYERS = 10_000, 512, 2
LENGTHS = 16, 64  # tokens of a completion


def make_run(place: Path) -> Path:
    """A run folder with the model, trained for one update on random words."""
    import elman

    draw = random.Random(0)
    words = [f"w{number}" for number in range(VOCABULARY - 2)]
    text = place / "words.txt"
    lines = [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]
    text.write_text("\n".join([*lines, *(" ".join(draw.choices(words, k=20)) for _ in range(50))]) + "\n")
    recipe = {
        "data": {"train": str(text), "valid": str(text)},
        "tokenizer": {"type": "word", "min_frequency": 1, "vocab_size": VOCABULARY},
        "model": {"type": "lstm", "hidden_size": WIDTH, "num_layers": LAYERS, "tied_embeddings": False},
        "training": {"max_steps": 1, "batch_size": 2, "sequence_length": 4},
    }
    elman.train(recipe, run=place / "lm", progress=False)
    return place / "lm"


@contextmanager
def server(command: list[str], port: int) -> Iterator[int]:
    """A server in a process of its own, once it is healthy."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        break
                except OSError:
                    if process.poll() is not None:
                        raise SystemExit(f"{command[:3]} has ended") from None
                    time.sleep(0.2)
            yield port
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def served(command: list[str], streams: int, seconds: float) -> dict[str, float]:
    port = free_port()
    with server([*command, str(port)], port):
        asyncio.run(run_load(port, "lm", streams, 1.0, LENGTHS))  # warm up
        return asyncio.run(run_load(port, "lm", streams, seconds, LENGTHS))


def generated(kind: str, streams: int, seconds: float, threads: int) -> dict[str, float]:
    """`generate` of transformers on batches of as many rows, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.serving.transformers_peer",
        kind,
        str(streams),
        str(seconds),
        str(threads),
    ]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {"tokens_per_second": float(out.split()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--only", nargs="*", default=[], help="names of variants")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = make_run(place)
        threads = str(options.threads)
        from benchmarks.serving.onnx_model import write_lstm

        write_lstm(place / "lm.onnx", VOCABULARY, WIDTH, LAYERS)
        elman = ["-m", "elman", "serve", str(run), "--no-token", "--log-level", "error", "--threads", threads]
        onnx = ["-m", "benchmarks.serving.onnx_server", str(place / "lm.onnx"), str(run / "tokenizer.json"), threads]
        variants: dict[str, Any] = {
            "elman fp32": lambda n: served([*elman, "--port"], n, options.seconds),
            "elman int8": lambda n: served([*elman, "--weights", "int8", "--port"], n, options.seconds),
            "onnxruntime, static batches": lambda n: served(onnx, n, options.seconds),
            "transformers GPT-2": lambda n: generated("gpt2", n, options.seconds, options.threads),
            "transformers Mamba": lambda n: generated("mamba", n, options.seconds, options.threads),
        }
        chosen = {name: run for name, run in variants.items() if not options.only or name in options.only}
        rows: dict[str, dict[str, list[dict[str, float]]]] = {}
        for number in range(options.rounds):
            for streams in options.streams:
                for name in list(chosen)[:: -1 if number % 2 else 1]:
                    found = chosen[name](streams)
                    rows.setdefault(str(streams), {}).setdefault(name, []).append(found)
                    print(f"{streams:>3} streams  {name:<28}", {key: round(value, 1) for key, value in found.items()})
    results = {
        streams: {
            name: {key: statistics.median(one[key] for one in measured) for key in measured[0]}
            for name, measured in by_name.items()
        }
        for streams, by_name in rows.items()
    }
    print(f"wrote {write('serving', {'rounds': options.rounds, 'threads': options.threads, 'streams': results})}")


if __name__ == "__main__":
    main()
