"""Requests over bare sockets, one connection each, that tell a complete answer from one that was cut off."""

import asyncio
import json
import time
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int  # 0: none
    body: bytes
    complete: bool
    seconds: float
    problem: str = ""

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """Of a stream, those that arrived in full."""
        lines = [line for line in self.body.split(b"\n\n")[:-1] if line.startswith(b"data: {")]
        return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def request_bytes(host: str, token: str, path: str, body: Any, *, method: str = "POST", id: str = "") -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}", "Connection: close"]
    lines += [f"X-Request-Id: {id}"] * bool(id)
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"] * (body is not None)
    return "\r\n".join([*lines, "", ""]).encode() + data


async def exchange(port: int, request: bytes) -> Answer:
    """Sends a request, and reads what comes until the connection ends."""
    begun, received, problem = time.perf_counter(), bytearray(), ""
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        while part := await reader.read(2**16):
            received += part
    except OSError as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        if writer is not None:
            writer.transport.abort()
    return _answer(bytes(received), time.perf_counter() - begun, problem)


def _answer(received: bytes, seconds: float, problem: str) -> Answer:
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return Answer(0, b"", False, seconds, problem or ("closed" if not received else "cut in the headers"))
    lines = head.lower().split(b"\r\n")
    status = int(lines[0].split()[1])
    if b"transfer-encoding: chunked" in lines:
        whole, ended = _chunks(body)
        return Answer(status, whole, ended, seconds, problem)
    (length,) = (int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    return Answer(status, body, len(body) == length, seconds, problem)


def _chunks(data: bytes) -> tuple[bytes, bool]:
    """The bytes of all chunks, and whether the last one is there."""
    found = bytearray()
    while data:
        size, _, data = data.partition(b"\r\n")
        if size == b"0":
            return bytes(found), data == b"\r\n"
        count = int(size, 16)
        found += data[:count]
        data = data[count + 2 :]
    return bytes(found), False
