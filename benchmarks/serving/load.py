"""A load of concurrent streams of completions over HTTP, and what they measure. Bare sockets: the client shares the
processor with the server, so it does as little as possible."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

WORDS = [f"w{number}" for number in range(9000)]


@dataclass
class Stream:
    """One client, which sends its next request when it has the answer to the last."""

    first: list[float] = field(default_factory=list)  # seconds to the first token of each request
    tokens: int = 0
    requests: int = 0


def prompt(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(4, 16)))


async def one_request(port: int, model: str, stream: Stream, draw: random.Random, lengths: tuple[int, int]) -> None:
    """Reads events as they come; each `data:` line is a token."""
    body = {
        "model": model,
        "prompt": prompt(draw),
        "max_tokens": draw.randint(*lengths),
        "ignore_eos": True,
        "seed": draw.randrange(2**30),
        "stream": True,
    }
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began, before = time.perf_counter(), stream.tokens
    writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
    answer = b""
    while part := await reader.read(2**16):
        answer = answer or part
        count = part.count(b"data: {")
        if count and stream.tokens == before:
            stream.first.append(time.perf_counter() - began)
        stream.tokens += count
    writer.close()
    got = stream.tokens - before - 1  # the last event has the reason of the end
    if got != body["max_tokens"]:
        raise SystemExit(f"{got} tokens instead of {body['max_tokens']}: {answer[:500]!r}")
    stream.tokens -= 1
    stream.requests += 1


async def run_load(port: int, model: str, streams: int, seconds: float, lengths: tuple[int, int]) -> dict[str, float]:
    """Tokens per second of all streams, and the time to the first token."""
    clients = [Stream() for _ in range(streams)]
    began = time.perf_counter()

    async def client(number: int) -> None:
        draw = random.Random(number)
        while time.perf_counter() - began < seconds:
            await one_request(port, model, clients[number], draw, lengths)

    await asyncio.gather(*(client(number) for number in range(streams)))
    elapsed = time.perf_counter() - began
    first = sorted(value for one in clients for value in one.first)
    return {
        "tokens_per_second": sum(one.tokens for one in clients) / elapsed,
        "first_token_ms": 1e3 * first[len(first) // 2],
        "first_token_p99_ms": 1e3 * first[min(len(first) - 1, int(0.99 * len(first)))],
        "requests": sum(one.requests for one in clients),
        "seconds": elapsed,
    }
