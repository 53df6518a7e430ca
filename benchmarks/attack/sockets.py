"""Connect to a server and send it what no HTTP client sends: it refuses, closes, and goes on with its work.

    python -m benchmarks.attack.sockets --count 20000

Half and slow requests, headers and bodies without end, pipelines, tricks with lengths and chunks, bytes that are no
UTF-8, JSON that is deep, huge, or none, other versions of HTTP, upgrades, absolute targets, line breaks in headers,
random and changed bytes, clients that close or stop to read in the middle of a stream. A violation is status 500, a
connection that is still open after its time, a request with an ambiguous length that is accepted, an answer with a
path or traceback, and, after every hundred connections, an honest request that is not answered as at the beginning,
requests that still run, open files or threads that are left over, or memory that has grown by a quarter.
"""

import asyncio
import contextlib
import re
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import LEAK
from benchmarks.attack.server_process import ServerProcess, words_of
from benchmarks.attack.small_runs import runs_in
from benchmarks.attack.socket_plans import KINDS, ORDER, Dice, Plan, Words

SETTINGS = {
    "header_seconds": 1, "body_seconds": 1, "idle_seconds": 1, "request_seconds": 20, "drain_seconds": 1,
    "log_level": "error",
}  # fmt: skip
AT_ONCE = 24  # connections
BATCH = 100
OPEN = 30.0  # seconds after which a connection must have been closed, whatever the client does
DEAF = 4.0  # seconds without reading, longer than the server waits
GROWTH = 1.25  # of the memory
MODELS = ["language-model", "classify"]
POOL = 32  # threads that the event loop keeps for work at most, started when they are first needed


class Connection:
    """One client that follows a plan."""

    def __init__(self, port: int, plan: Plan):
        self.port, self.plan = port, plan
        self.answer, self.sent_all, self.closed = b"", True, False

    async def run(self) -> None:
        plan = self.plan
        small = 4096 if plan.end == "never" else None
        connection = socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        limit = 2 if plan.end == "never" else 2**16
        reader, writer = await asyncio.open_connection(sock=connection, limit=limit)
        reading = asyncio.ensure_future(self._read(reader))
        try:
            with contextlib.suppress(ConnectionError):
                for piece in plan.pieces:
                    writer.write(piece)
                    await asyncio.wait_for(writer.drain(), OPEN)
                    if plan.pause:
                        await asyncio.sleep(plan.pause)
                    if writer.is_closing() or self.closed:
                        break
            if plan.end == "half":
                with contextlib.suppress(OSError):
                    writer.write_eof()
            await asyncio.wait_for(reading, OPEN)
        finally:
            reading.cancel()
            if plan.end == "reset":
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """To the end, or as far as the plan says."""
        plan = self.plan
        if plan.end == "never":
            await asyncio.sleep(DEAF)  # longer than the server waits for a reader
        with contextlib.suppress(ConnectionError):
            while plan.end in ("read", "half", "never") or len(self.answer) < plan.read:
                part = await reader.read(2**16)
                if not part:
                    self.closed = True
                    return
                self.answer = self.answer + part if len(self.answer) < 2**20 else self.answer
        self.closed = True


STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def judged(answer: bytes, plan: Plan) -> tuple[str, list[str]]:
    """The first status, and what is wrong with an answer."""
    statuses = [int(found) for found in STATUS.findall(answer)]
    shown = b" ".join(plan.pieces)[:300]
    wrong = [f"status 500 after {shown!r}"] if 500 in statuses else []
    if match := LEAK.search(answer):
        wrong.append(f"says {match[0]!r} in {answer[:300]!r} after {shown!r}")
    if answer and not answer.startswith(b"HTTP/1.1 "):
        wrong.append(f"is no HTTP: {answer[:100]!r} after {shown!r}")
    if plan.strict and any(status < 400 for status in statuses if status != 100):
        wrong.append(f"accepted, with {statuses}: {shown!r}")
    return (f"{statuses[0] // 100}xx" if statuses else "closed"), wrong


async def connect(port: int, plan: Plan) -> tuple[str, list[str]]:
    one = Connection(port, plan)
    try:
        await one.run()
    except TimeoutError:
        return "open", [f"open after {OPEN} s: {b' '.join(plan.pieces)[:300]!r}, answered {one.answer[:100]!r}"]
    except OSError as problem:
        return "refused", [f"no connection: {problem}"]
    return judged(one.answer, plan)


class Watched:
    """What the server was like at the beginning, and what has changed since."""

    def __init__(self, server: ServerProcess):
        self.server = server
        self.text = self.honest()
        self.files = self.threads = self.memory = 0

    def begin(self) -> None:
        """After a first batch, which fills caches."""
        self.files, self.threads, self.memory = self.now()

    def now(self) -> tuple[int, int, int]:
        return self.server.open_files(), self.server.threads(), self.server.resident()

    def honest(self) -> Any:
        fields = {"model": "language-model", "prompt": "the cat", "max_tokens": 20, "seed": 7, "logprobs": 2}
        found = self.server.json("POST", "/v1/completions", fields)
        label = self.server.json("POST", "/classify", {"model": "classify", "input": "this is x"})["data"]
        return found["choices"], label

    def check(self) -> list[str]:
        wrong = [] if self.honest() == self.text else ["an honest request is answered otherwise than at the beginning"]
        until = time.monotonic() + OPEN
        while time.monotonic() < until and (self.server.running() or self.now()[0] > self.files > 0):
            time.sleep(0.1)
        if running := self.server.running():
            wrong.append(f"{running:g} requests still run")
        if self.files:
            files, threads, memory = self.now()
            wrong += [f"{files} open files, {self.files} before"] if files > self.files else []
            wrong += [f"{threads} threads, {self.threads} before"] if threads > self.threads + POOL else []
            wrong += [f"{memory >> 20} MB, {self.memory >> 20} before"] if memory > GROWTH * self.memory else []
        return wrong


async def batch(words: Words, port: int, seed: int, first: int, count: int) -> list[tuple[str, str, list[str]]]:
    """Connections with these numbers, some at the same time: kind, outcome, and what is wrong."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> tuple[str, str, list[str]]:
        dice = Dice(f"{seed} {number}")
        kind = dice.choice(ORDER)
        async with gate:
            outcome, wrong = await connect(port, KINDS[kind][0](words, dice))
        return kind, outcome, [f"connection {number}: {text}" for text in wrong]

    return await asyncio.gather(*(one(number) for number in range(first, first + count)))


def main() -> None:
    campaign = Campaign(parser("sockets", __doc__, 20_000).parse_args())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with ServerProcess(place / "server", *runs_in(place / "runs", MODELS), *words_of(SETTINGS)) as server:
            words, watched = Words(server.host.encode(), server.token.encode()), Watched(server)
            asyncio.run(batch(words, server.port, campaign.seed, 0, 2 * BATCH))  # fills caches and thread pools
            watched.check()
            watched.begin()
            facts = campaign.facts
            while campaign.more():
                first = campaign.next.get("connection", 2 * BATCH)
                count = min(BATCH, campaign.count - campaign.cases)
                for kind, outcome, wrong in asyncio.run(batch(words, server.port, campaign.seed, first, count)):
                    campaign.tally(f"{kind}: {outcome}", *wrong)
                campaign.report(f"after connection {first + count}", *watched.check())
                campaign.next["connection"] = first + count
                files, threads, memory = watched.now()
                facts["open files"], facts["threads"] = [watched.files, files], [watched.threads, threads]
                facts["MB"] = [watched.memory >> 20, memory >> 20]
            campaign.report("log of the server", *(line[:1000] for line in server.errors()[:20]))
    campaign.end()


if __name__ == "__main__":
    main()
