"""Tokens per second and time to the first token of `elman serve`, beside peers on the same machine, taking turns.

    python -m benchmarks.serving --rounds 3

The model is an LSTM of two layers, 512 wide, over 10,000 words. Peers: the same model in onnxruntime, also quantized,
behind the same web framework with static batches, and `generate` of transformers with a GPT-2 and a Mamba of the same
size, in its own process without a server. Beside them stands what the processor can do at most. Clients keep their
connections, and begin within a third of a second. All texts of elman's are compared between one and more streams.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.reporting import write
from benchmarks.roofline import FORMS, roofline
from benchmarks.serving.load import Measured, requests, run_load

VOCABULARY, WIDTH, LAYERS = 10_000, 512, 2
WEIGHTS = 8 * LAYERS * WIDTH**2 + WIDTH * VOCABULARY  # that a token is multiplied with
LENGTHS = 16, 64  # tokens of a completion


def make_run(place: Path, width: int = WIDTH) -> Path:
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
        "model": {"type": "lstm", "hidden_size": width, "num_layers": LAYERS, "tied_embeddings": False},
        "training": {"max_steps": 1, "batch_size": 2, "sequence_length": 4},
    }
    elman.train(recipe, run=place / "lm", progress=False)
    return place / "lm"


@contextmanager
def server(command: list[str], port: int) -> Iterator[int]:
    """A server in a process of its own, once it is healthy; gives the process's number."""
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
            yield process.pid
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def served(command: list[str], streams: list[int], seconds: float) -> Iterator[Measured]:
    """What each number of streams measures, with a new server."""
    port, made = free_port(), requests("lm", *LENGTHS)
    with server([*command, str(port)], port):
        run_load(port, made, 4, 1.0)  # warm up
        for count in streams:
            yield run_load(port, made, count, seconds)


def generated(kind: str, streams: list[int], seconds: float, threads: int) -> Iterator[Measured]:
    """`generate` of transformers on batches of as many rows, in processes of its own."""
    yield from (Measured(_generated(kind, count, seconds, threads), {}) for count in streams)


def _generated(kind: str, streams: int, seconds: float, threads: int) -> dict[str, float]:
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
        from benchmarks.serving.onnx_model import quantize, write_lstm

        write_lstm(place / "lm.onnx", VOCABULARY, WIDTH, LAYERS)
        quantize(place / "lm.onnx", place / "lm-int8.onnx")
        elman = ["-m", "elman", "serve", str(run), "--no-token", "--log-level", "error", "--threads", threads]
        onnx = ["-m", "benchmarks.serving.onnx_server"]
        rest = [str(run / "tokenizer.json"), threads]
        streams, seconds = options.streams, options.seconds
        variants: dict[str, Callable[[], Iterator[Measured]]] = {
            "elman fp32": lambda: served([*elman, "--port"], streams, seconds),
            "elman int8": lambda: served([*elman, "--weights", "int8", "--port"], streams, seconds),
            "onnxruntime fp32": lambda: served([*onnx, str(place / "lm.onnx"), *rest], streams, seconds),
            "onnxruntime int8": lambda: served([*onnx, str(place / "lm-int8.onnx"), *rest], streams, seconds),
            "transformers GPT-2": lambda: generated("gpt2", streams, seconds, options.threads),
            "transformers Mamba": lambda: generated("mamba", streams, seconds, options.threads),
        }
        chosen = {name: run for name, run in variants.items() if not options.only or name in options.only}
        rows: dict[str, dict[str, list[dict[str, float]]]] = {str(count): {} for count in streams}
        limits: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
        texts: dict[str, dict[int, int]] = {}
        for number in range(options.rounds):
            for form in FORMS:
                limits[form].append(roofline(options.threads, WEIGHTS, form) | steps(form, options.threads))
            for name in list(chosen)[:: -1 if number % 2 else 1]:
                if number and name.startswith("transformers"):  # far behind, and slow to start
                    continue
                for count, found in zip(streams, chosen[name](), strict=True):
                    rows[str(count)].setdefault(name, []).append(found.figures)
                    if name.startswith("elman"):
                        check_same(texts.setdefault(name, {}), found.texts, name)
                    figures = {key: round(value, 1) for key, value in found.figures.items()}
                    print(f"{count:>3} streams  {name:<20}", figures, flush=True)
    results = {streams: medians(by_name) for streams, by_name in rows.items()}
    told = {"rounds": options.rounds, "threads": options.threads, "load_average": os.getloadavg()}
    written = {**told, "limits": medians(limits), "streams": results}
    print(f"wrote {write('serving', written)}")


def steps(form: str, threads: int, rows: int = 64) -> dict[str, float]:
    """Tokens per second of steps of many rows by themselves, without sampling, and of one row."""
    import torch

    from elman.compiler.cpu.step import RowRunner, compile_step
    from elman.models import LanguageModel, StackConfig

    layers = {"hidden_size": WIDTH, "pattern": ["lstm"] * LAYERS, "tied_embeddings": False}
    with torch.inference_mode():
        model = LanguageModel(StackConfig.make(layers), VOCABULARY).eval()
        runner = RowRunner(compile_step(model, form), threads)
        numbers = [runner.add(model.initial_state(1)) for _ in range(rows)]
        found = {}
        for count, times in ((1, 100), (rows, 10)):
            best = float("inf")
            for _ in range(5):
                began = time.perf_counter()
                for _ in range(times):
                    runner.step(numbers[:count], [1] * count)
                best = min(best, (time.perf_counter() - began) / times)
            found[f"tokens_per_second_of_steps_of_{count}"] = count / best
    return found


def check_same(known: dict[int, int], texts: dict[int, int], name: str) -> None:
    """A request has the same text in any company."""
    for number in known.keys() & texts.keys():
        if known[number] != texts[number]:
            raise SystemExit(f"{name}: the text of request {number} depends on its company")
    known.update(texts)


def medians(measured: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]}
        for name, found in measured.items()
    }


if __name__ == "__main__":
    main()
