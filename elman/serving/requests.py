"""A request from its first to its last byte: its id, time limit, log entry and metrics; errors that nothing caught."""

import asyncio
import logging
import random
import re
import time
from typing import Any

from elman.errors import ElmanError
from elman.serving.errors import ApiError, of_user_input, unexpected
from elman.serving.metrics import Metrics
from elman.serving.settings import ServeConfig

LOG = logging.getLogger("elman.serving")
SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
EVENTS = b"text/event-stream"
LONGEST_PATH = 200  # characters of a path in the log
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class Exchange:
    """What was sent of an answer so far, and the time limit, which shutting down brings forward."""

    def __init__(self, scope: Any, send: Any):
        given = [value for name, value in scope["headers"] if name == b"x-request-id"]
        safe = len(given) == 1 and SAFE_ID.fullmatch(given[0])
        self.id = given[0].decode() if safe else f"{random.getrandbits(128):032x}"
        self.scope, self._send = scope, send
        self.begun = time.monotonic()
        self.status, self.events, self.ended = 0, False, False
        self.deadline: asyncio.Timeout | None = None
        self.stopped_by: ApiError | None = None

    def stop(self, reason: ApiError) -> None:
        """Ends the request now, with an error."""
        if self.deadline is not None and not self.deadline.expired():
            self.stopped_by = reason
            self.deadline.reschedule(asyncio.get_running_loop().time())

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [(name.lower(), value) for name, value in message.get("headers", [])]
            own = {name for name, _ in headers}
            self.events = any(name == b"content-type" and value.startswith(EVENTS) for name, value in headers)
            added = {**HEADERS, b"x-request-id": self.id.encode()}
            headers += [(name, value) for name, value in added.items() if name not in own]
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self.ended = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, error: ApiError, receive: Any) -> None:
        """An error as the answer, or as the last event of a stream that has begun."""
        if not self.status:
            await error.response()(self.scope, receive, self.send)
        elif self.events and not self.ended:
            event = b"data: %s\n\n" % error.json()
            await self.send({"type": "http.response.body", "body": event, "more_body": False})


class Requests:
    """Middleware, the outermost one."""

    def __init__(self, app: Any, settings: ServeConfig, metrics: Metrics, running: set[Exchange]):
        self.app, self.settings, self.metrics, self.running = app, settings, metrics, running

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        scope["elman.request_id"] = exchange.id
        self.running.add(exchange)
        try:
            await self.answer(exchange, scope, receive)
        finally:
            self.running.discard(exchange)
            self.note(exchange)

    async def answer(self, exchange: Exchange, scope: Any, receive: Any) -> None:
        try:
            async with asyncio.timeout(self.settings.request_seconds) as exchange.deadline:
                await self.app(scope, receive, exchange.send)
        except TimeoutError as error:
            if exchange.deadline is None or not exchange.deadline.expired():
                await self.crash(exchange, error, receive)
                return
            most = self.settings.request_seconds
            late = ApiError(504, f"the request took longer than {most:g} seconds", code="timeout")
            await exchange.fail(exchange.stopped_by or late, receive)
        except ApiError as error:  # of middleware, or in a stream
            await exchange.fail(error, receive)
        except Exception as error:
            await self.crash(exchange, error, receive)

    async def crash(self, exchange: Exchange, error: Exception, receive: Any) -> None:
        cause = error.__cause__
        known = (
            cause if isinstance(cause, ApiError) else of_user_input(cause) if isinstance(cause, ElmanError) else None
        )
        if exchange.status and known:  # routing wraps the errors that it would have answered before the first byte
            await exchange.fail(known, receive)
            return
        LOG.error("unexpected", exc_info=error, extra={"data": {"request": exchange.id}})
        await exchange.fail(unexpected(exchange.id), receive)

    def note(self, exchange: Exchange) -> None:
        scope, seconds = exchange.scope, time.monotonic() - exchange.begun
        route = getattr(scope.get("route"), "path", "unmatched")
        self.metrics.answered(route, scope["method"], exchange.status)
        data = {
            "request": exchange.id,
            "method": scope["method"][:16],
            "path": scope["path"][:LONGEST_PATH],
            "status": exchange.status,
            "seconds": round(seconds, 6),
            "owner": scope.get("elman.owner"),
            "client": (scope.get("client") or ("",))[0],
        }
        LOG.info("request", extra={"data": data})
