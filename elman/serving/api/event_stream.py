"""Server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"


def event(value: Any, name: str = "") -> bytes:
    """One event; `name` is its type, where a protocol has types."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


class EventStream(Response):
    """Sends events as they come. Those that come while one is being sent are sent together.

    Ends the iterator when the client has gone.
    """

    media_type = "text/event-stream"

    def __init__(self, events: "Primed"):
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watching = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = b""
        try:
            async for data in self.events:
                if data.endswith(DONE):  # nothing follows: sent with the end of the answer
                    last = data
                else:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            await self.events.aclose()
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Primed:
    """Events of which the first is there already, so that what is wrong with a request is an answer of its own."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]):
        self._first: bytes | None = first
        self._rest = rest

    def __aiter__(self) -> "Primed":
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, None
        return await anext(self._rest) if first is None else first

    async def aclose(self) -> None:
        await self._rest.aclose()


async def primed(events: AsyncGenerator[bytes]) -> Primed:
    return Primed(await anext(events), events)
