"""A load of concurrent streams of completions over HTTP, and what they measure. The client is compiled (load.cpp): it
shares the processor with the server, so it does as little as possible."""

import ctypes
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elman.compiler.cpu import build

WORDS = [f"w{number}" for number in range(9000)]
REQUESTS = 60_000
RAMP = 0.3  # seconds within which all streams begin


class Requests(NamedTuple):
    """Requests without headers, and the tokens that each asks for."""

    bodies: list[bytes]
    lengths: list[int]


class Measured(NamedTuple):
    figures: dict[str, float]
    texts: dict[int, int]  # hashes of the texts, by the numbers of their requests


@cache
def requests(model: str, shortest: int, longest: int) -> Requests:
    """Prompts of 4 to 16 words, each with a seed of its own."""
    draw = random.Random(0)
    bodies, lengths = [], []
    for _ in range(REQUESTS):
        lengths.append(draw.randint(shortest, longest))
        body = {
            "model": model,
            "prompt": " ".join(draw.choices(WORDS, k=draw.randint(4, 16))),
            "max_tokens": lengths[-1],
            "ignore_eos": True,
            "seed": draw.randrange(2**30),
            "stream": True,
        }
        bodies.append(json.dumps(body).encode())
    return Requests(bodies, lengths)


def run_load(port: int, made: Requests, streams: int, seconds: float) -> Measured:
    """Tokens per second of all streams, and the time to the first token. Every answer is checked."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    sent = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in made.bodies]
    sizes, expected = (np.array(values, np.int64) for values in (list(map(len, sent)), made.lengths))
    first, whole, results = np.zeros(len(sent)), np.zeros(len(sent)), np.zeros(4)
    hashes, problem = np.zeros(len(sent), np.uint64), ctypes.create_string_buffer(1024)

    def at(array: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    numbers = ctypes.c_int64(port), ctypes.c_int64(streams), ctypes.c_double(RAMP), ctypes.c_double(seconds)
    given = (ctypes.c_char_p * len(sent))(*sent), at(sizes), at(expected), ctypes.c_int64(len(sent))
    found = *map(at, (first, whole, hashes, results)), problem
    source = (Path(__file__).parent / "load.cpp").read_text()
    if build.library(source, "scalar_math.h").run_load(*numbers, *given, *found):
        raise SystemExit(problem.value.decode(errors="replace"))
    answered = np.flatnonzero(whole)
    tokens, count, elapsed, busy = results.tolist()
    figures = {
        "tokens_per_second": tokens / elapsed,
        "first_token_ms": 1e3 * float(np.quantile(first[answered], 0.5)),
        "first_token_p99_ms": 1e3 * float(np.quantile(first[answered], 0.99)),
        "requests": count,
        "seconds": elapsed,
        "client_us_per_token": 1e6 * busy / tokens,
    }
    return Measured(figures, {int(number): int(hashes[number]) for number in answered})
