"""What clients send to a server that no HTTP library sends, one kind after another, as plans of pieces of bytes."""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

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
    b"zz\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3\nabc\n0\n\n",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\nabc\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b" 3\r\nabc\r\n0\r\n\r\n", b"+3\r\nabc\r\n0\r\n\r\n",
    b"3;" + b"a" * 100_000 + b"\r\nabc\r\n0\r\n\r\n", b"3\r\nabc0\r\n\r\n", b"\r\n\r\n", b"0\r\nX: y\r\n\r\n",
    b"3\rabc\r0\r\r",
    b"0\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    b"0\r\nContent-Length: 5\r\n\r\n",
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
    (b"Content-Length: " + b"9" * 5000,), (b"Content-Length : 3",),
    (b"Content-Length: 3\x00",), (b"Content-Length: \xb2",),
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
    b'{"temperature":Infinity}', b'{"temperature":-Infinity}', b'{"temperature":1e400}',
    b'{"seed":' + b"9" * 5000 + b"}",
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
    b"http://evil/health", b"https://127.0.0.1/v1/models", b"//evil/health", b"*", b"evil:443", b"\\\\evil\\x",
    b"@evil/",
    b"/health#a", b"/v1/models/%0d%0aSet-Cookie:%20a=b", b"/v1/models/..%2f..%2fetc%2fpasswd", b"/../../etc/passwd",
    b"/v1/models/" + b"a" * 9000, b"/?" + b"a=b&" * 3000, b"/%", b"/%zz", b"/v1//models", b"/./health", b"/\x7f", b"?",
    b"/v1/models/%00", b"file:///etc/passwd", b"/v1/sessions/" + b"%2e" * 2000, b"/v1/models;a=b",
    b"/health%20HTTP/1.1",
]  # fmt: skip


def targets(words: Words, dice: Dice) -> Plan:
    method = dice.choice((b"GET", b"POST", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"HEAD"))
    return Plan([words.head(b"%s %s HTTP/1.1" % (method, dice.choice(TARGETS)), b"Connection: close")])


HEADERS = [
    b"X-Request-Id: a\r\nSet-Cookie: a=b", b"X-Request-Id: a\rb", b"X-Request-Id: a\nb: c", b"X: a\x00b", b"X\x00: a",
    b"X : a", b" X: a", b"X: a\r\n folded", b": a", b"X", b"X\r\n", b"Host: evil", b"Host:", b"\xc5\xbf: a",
    b"X: \x7f\x1b[31m",
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
    fields: dict[str, Any] = {
        "stream": dice.random() < 0.7,
        "max_tokens": dice.choice((50, 500, 2000)),
        "ignore_eos": True,
    }
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
