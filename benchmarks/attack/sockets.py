"""Connect to a server and send it what no HTTP client sends: it refuses, closes, and goes on with its work.

    python -m benchmarks.attack.sockets --count 20000

Half and slow requests, headers and bodies without end, pipelines, tricks with lengths and chunks, bytes that are no
UTF-8, JSON that is deep, huge, or none, other versions of HTTP, upgrades, absolute targets, line breaks in headers,
random and changed bytes, clients that close or stop to read in the middle of a stream. A violation is status 500, a
connection that is still open after its time, a request with an ambiguous length that is accepted, an answer with a path
or traceback, and, after every hundred connections, an honest request that is not answered as at the beginning, requests
that still run, open files or threads that are left over, or memory that has grown by a quarter.
"""

import asyncio
import contextlib
import json
import random
import re
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import LEAK
from benchmarks.attack.server_process import ServerProcess, words_of
from benchmarks.attack.small_runs import runs_in

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
Dice = random.Random


class Plan(NamedTuple):
    """What a client sends, piece by piece, and how it ends."""

    pieces: list[bytes]
    pause: float = 0.0  # seconds between two pieces
    end: str = "read"  # read to the end; close, reset or half-close after so many bytes; never read
    read: int = 0
    strict: bool = False  # the first answer is an error of the 400s, or none


class Words(NamedTuple):
    """What requests to this server have in common."""

    host: bytes
    token: bytes

    def head(self, line: bytes = b"POST /v1/completions HTTP/1.1", *more: bytes, json: bool = True) -> bytes:
        lines = [line, b"Host: " + self.host, b"Authorization: Bearer " + self.token, *more]
        return b"\r\n".join([*lines, *([b"Content-Type: application/json"] if json else []), b"", b""])

    def post(self, body: bytes, *more: bytes, path: bytes = b"/v1/completions") -> bytes:
        return self.head(b"POST %s HTTP/1.1" % path, b"Content-Length: %d" % len(body), *more) + body

    def completion(self, **fields: Any) -> bytes:
        body = {"model": "language-model", "prompt": "the cat", "max_tokens": 8, "seed": 1, **fields}
        return self.post(json.dumps(body).encode(), b"Connection: close")


def half(words: Words, dice: Dice) -> Plan:
    request = words.completion()
    return Plan([request[: dice.randrange(len(request))]], end=dice.choice(("read", "close", "reset", "half")))


def slow(words: Words, dice: Dice) -> Plan:
    request = words.completion() if dice.random() < 0.5 else words.head() + b" " * 1000
    start = dice.randrange(len(request))
    return Plan([request[:start], *(bytes([one]) for one in request[start : start + 200])], pause=0.05)


def large_headers(words: Words, dice: Dice) -> Plan:
    options = [b"A: b\r\n" * dice.choice((64, 1000, 50_000)), b"A: " + b"a" * dice.choice((17_000, 10**6)) + b"\r\n"]
    options += [b"a" * 100_000, b"a" * 100_000 + b": b\r\n", b"Cookie: " + b"a=b;" * 10_000 + b"\r\n"]
    head = words.head(b"GET /v1/models HTTP/1.1", json=False)[:-2]
    return Plan([head + dice.choice(options) + dice.choice((b"", b"\r\n"))], strict=True)


def large_body(words: Words, dice: Dice) -> Plan:
    size = dice.choice((2**20 + 1, 2**31, 2**63, 2**64, 10**30))
    if dice.random() < 0.5:
        return Plan([words.head(more := b"POST /classify HTTP/1.1", b"Content-Length: %d" % size), b"x" * 70_000, more])
    chunks = [b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"] * dice.choice((15, 17, 40))
    return Plan([words.head(b"POST /classify HTTP/1.1", b"Transfer-Encoding: chunked"), *chunks, b"0\r\n\r\n"])


def pipeline(words: Words, dice: Dice) -> Plan:
    parts = [words.post(b'{"model":"classify","input":"x"}', path=b"/classify"), words.completion(), b"\x00\r\n\r\n"]
    parts += [words.head(b"GET /v1/models HTTP/1.1", json=False), words.post(b"{"), words.head(b"HEAD / HTTP/1.1")]
    parts += [words.completion(stream=True), words.head(b"GET /none HTTP/1.1", json=False)]
    return Plan([b"".join(dice.choice(parts) for _ in range(dice.choice((2, 5, 50, 300))))], end=dice.choice(ENDS))


CHUNKS = [
    b"zz\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3\nabc\n0\n\n", b"3\r\nabcd\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\nabc\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b" 3\r\nabc\r\n0\r\n\r\n", b"+3\r\nabc\r\n0\r\n\r\n",
    b"3;" + b"a" * 100_000 + b"\r\nabc\r\n0\r\n\r\n", b"3\r\nabc0\r\n\r\n", b"\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"3\rabc\r0\r\r",
    b"0\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n",
]  # fmt: skip
ENCODINGS = [
    b"chunked",
    b"Chunked",
    b"chunked, identity",
    b"identity",
    b"xchunked",
    b"\x0bchunked",
    b"gzip, chunked",
    b"",
]


def chunks(words: Words, dice: Dice) -> Plan:
    encoding = b"Transfer-Encoding: " + dice.choice(ENCODINGS)
    more = [encoding] * dice.choice((1, 1, 2))
    return Plan([words.head(b"POST /classify HTTP/1.1", *more) + dice.choice(CHUNKS)], strict=True)


LENGTHS = [
    (b"Content-Length: 3", b"Content-Length: 4"), (b"Content-Length: 3, 3",), (b"Content-Length: +3",),
    (b"Content-Length: -3",), (b"Content-Length: 0x3",), (b"Content-Length: 3 3",), (b"Content-Length:",),
    (b"Content-Length: " + b"9" * 5000,), (b"Content-Length : 3",), (b"Content-Length: 3\x00",), (b"Content-Length: \xb2",),
    (b"Content-Length: 3", b"Transfer-Encoding: chunked"), (b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    (b"Content-Length: 3.0",), (b"Content-Length: 1e1",), (b"Content-Length: 3", b"Content-Length: 3"),
]  # fmt: skip


def lengths(words: Words, dice: Dice) -> Plan:
    smuggled = b"3\r\n{} \r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n"
    return Plan([words.head(b"POST /classify HTTP/1.1", *dice.choice(LENGTHS)) + smuggled], strict=True)


def no_utf8(words: Words, dice: Dice) -> Plan:
    odd = dice.choice((b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"\x80"))
    body = b'{"model":"language-model","prompt":"' + odd + b'","max_tokens":1}'
    heads = [words.head(b"GET /v1/models/" + odd + b" HTTP/1.1"), words.head(b"GET /health HTTP/1.1", b"X: " + odd)]
    heads += [words.post(body), words.post(body, path=b"/classify?model=" + odd)]
    heads += [words.head(b"GET /v1/sessions/%FF%C0%AF%00 HTTP/1.1"), words.head(b"GET /health HTTP/1.1", odd + b": x")]
    return Plan([dice.choice(heads)], end="read")


JSONS = [
    b"[" * 100_000, b'{"a":' * 50_000, b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"temperature":NaN}',
    b'{"temperature":Infinity}', b'{"temperature":-Infinity}', b'{"temperature":1e400}', b'{"seed":' + b"9" * 5000 + b"}",
    b'{"max_tokens":1,"max_tokens":-1}', b'{"prompt":"\\ud800"}', b'{"prompt":"\\udc00\\ud800"}', b'{"prompt":"\x00"}',
    b'{"logit_bias":{"\\ud800":1}}', b'\xef\xbb\xbf{"prompt":"a"}', '{"prompt":"a"}'.encode("utf-16"), b"", b"null",
    b'{"prompt":[' + b"-1," * 200_000 + b"-1]}", b'{"prompt":["' + b'","' * 100_000 + b'"]}', b'{"a":1,}', b"// a\n{}",
    b'{"prompt":"' + b"a" * 900_000 + b'"}', b'{"' + b"a" * 900_000 + b'":1}', b'{"prompt":[1e400]}', b'{"n":1e308}',
    b'{"stop":[' + b'"a",' * 100_000 + b'"a"]}', b'{"logit_bias":{' + b'"x":1,' * 60_000 + b'"y":1}}', b"1" * 6000,
    b'{"messages":[' + b'{"role":1},' * 50_000 + b'{"role":1}]}', b'{"input":[' + b"[]," * 200_000 + b"[]]}",
    b'{"tokens":[' + b"-1," * 200_000 + b"-1]}", b'{"user":' + b'{"a":' * 150 + b"1" + b"}" * 150 + b',"n":0}',
]  # fmt: skip
ROUTES = [b"/v1/completions", b"/v1/chat/completions", b"/v1/responses", b"/v1/sessions", b"/classify", b"/tokenize"]
ROUTES += [b"/detokenize", b"/fill"]


def jsons(words: Words, dice: Dice) -> Plan:
    return Plan([words.post(dice.choice(JSONS), b"Connection: close", path=dice.choice(ROUTES))])


def versions(words: Words, dice: Dice) -> Plan:
    lines = [
        b"GET /health",
        b"GET /health HTTP/0.9",
        b"GET /health HTTP/1.2",
        b"GET /health HTTP/2.0",
        b"get /health http/1.1",
    ]
    lines += [
        b"GET /health HTTP/3",
        b"GET /health HTTP/9.9",
        b"GET /health HTTP/1.",
        b"GET /health HTTP/1.10",
        b"HTTP/1.1",
    ]
    lines += [b"GET  /health HTTP/1.1", b"GET /health HTTP/1.1 x", b"GET\t/health\tHTTP/1.1", b"BREW /health HTTP/1.1"]
    others = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 200,
    ]
    others += [
        b"GET /health\r\n",
        b"\r\n" * 5000,
        b"\n",
        b"EHLO a\r\n",
        b"\x00" * 100,
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
    ]
    return Plan([dice.choice([*others, *(words.head(line, json=False) for line in lines)])])


def upgrades(words: Words, dice: Dice) -> Plan:
    protocol = dice.choice((b"websocket", b"h2c", b"TLS/1.0", b"a" * 1000, b""))
    key = (
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nHTTP2-Settings: AAMAAABkAAQAAP__"
    )
    more = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + protocol, key]
    if dice.random() < 0.3:
        more = [b"Expect: " + dice.choice((b"100-continue", b"200-ok", b"")), b"Content-Length: 3"]
    line = dice.choice((b"GET /health HTTP/1.1", b"POST /classify HTTP/1.1", b"GET /v1/models HTTP/1.1"))
    return Plan([words.head(line, *more) + dice.choice((b"", b"\x81\x05hello", words.head(), dice.randbytes(100)))])


TARGETS = [
    b"http://evil/health", b"https://127.0.0.1/v1/models", b"//evil/health", b"*", b"evil:443", b"\\\\evil\\x", b"@evil/",
    b"/health#a", b"/v1/models/%0d%0aSet-Cookie:%20a=b", b"/v1/models/..%2f..%2fetc%2fpasswd", b"/../../etc/passwd",
    b"/v1/models/" + b"a" * 9000, b"/?" + b"a=b&" * 3000, b"/%", b"/%zz", b"/v1//models", b"/./health", b"/\x7f", b"?",
    b"/v1/models/%00", b"file:///etc/passwd", b"/v1/sessions/" + b"%2e" * 2000, b"/v1/models;a=b", b"/health%20HTTP/1.1",
]  # fmt: skip


def targets(words: Words, dice: Dice) -> Plan:
    method = dice.choice((b"GET", b"POST", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"HEAD"))
    return Plan([words.head(b"%s %s HTTP/1.1" % (method, dice.choice(TARGETS)), b"Connection: close")])


HEADERS = [
    b"X-Request-Id: a\r\nSet-Cookie: a=b", b"X-Request-Id: a\rb", b"X-Request-Id: a\nb: c", b"X: a\x00b", b"X\x00: a",
    b"X : a", b" X: a", b"X: a\r\n folded", b": a", b"X", b"X\r\n", b"Host: evil", b"Host:", b"\xc5\xbf: a", b"X: \x7f\x1b[31m",
    b"Origin: http://evil", b"Authorization: Bearer x", b"Connection: close, keep-alive, x", b"Connection: Host",
    b"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil", b"Range: bytes=0-1,0-1,0-1",
    b"Accept-Encoding: gzip;q=1e400", b"Content-Type: text/plain", b"Content-Encoding: gzip", b"X-HTTP-Method: DELETE",
]  # fmt: skip


def headers(words: Words, dice: Dice) -> Plan:
    body = b'{"model":"language-model","prompt":"a","max_tokens":1}'
    return Plan([words.post(body, b"Connection: close", dice.choice(HEADERS))])


def changed(words: Words, dice: Dice) -> Plan:
    data = bytearray(words.completion(stream=dice.random() < 0.5))
    for _ in range(dice.choice((1, 2, 5, 20))):
        place = dice.randrange(len(data))
        match dice.randrange(3):
            case 0:
                data[place] = dice.randrange(256)
            case 1:
                del data[place : place + dice.randrange(1, 20)]
            case _:
                data[place:place] = dice.choice((b"\r\n", b"\x00", b" ", b"\xff", b":", b'"', b"{", b"\r\n\r\n"))
        data = data or bytearray(b"a")
    return Plan([bytes(data)], end=dice.choice(ENDS))


def noise(words: Words, dice: Dice) -> Plan:
    data = dice.randbytes(dice.choice((1, 10, 1000, 50_000)))
    return Plan([dice.choice((b"", b"GET ", b"POST /classify HTTP/1.1\r\n", words.head())) + data])


def leaving(words: Words, dice: Dice) -> Plan:
    """In the middle of a stream, or of an answer that is not there yet."""
    fields = {"stream": dice.random() < 0.7, "max_tokens": dice.choice((50, 500, 2000)), "ignore_eos": True}
    fields |= {"n": dice.choice((1, 4)), "logprobs": dice.choice((None, 5))}
    read = dice.choice((0, 1, 300, 3000))
    return Plan([words.completion(**fields)], end=dice.choice(("close", "reset", "half")), read=read)


def deaf(words: Words, dice: Dice) -> Plan:
    """Asks for much, and reads nothing."""
    return Plan([words.completion(stream=True, max_tokens=1500, n=8, ignore_eos=True, logprobs=5)], end="never")


ENDS = ("read", "read", "close", "reset", "half")
KINDS: dict[str, tuple[Callable[[Words, Dice], Plan], int]] = {  # with their share of the connections
    "half requests": (half, 8), "slow requests": (slow, 3), "large headers": (large_headers, 6),
    "large bodies": (large_body, 4), "pipelines": (pipeline, 6), "chunks": (chunks, 8), "lengths": (lengths, 8),
    "no UTF-8": (no_utf8, 8), "JSON": (jsons, 12), "versions": (versions, 8), "upgrades": (upgrades, 6),
    "targets": (targets, 8), "headers": (headers, 8), "changed bytes": (changed, 12), "noise": (noise, 6),
    "leaving": (leaving, 5), "deaf": (deaf, 1),
}  # fmt: skip
ORDER = [name for name, (_, share) in KINDS.items() for _ in range(share)]


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
            wrong += [f"{threads} threads, {self.threads} before"] if threads > self.threads else []
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
