"""HTTP connections within limits that uvicorn leaves open: their number, sizes and times of what arrives, slow readers.

connection ─▶ headers (header_seconds, header_bytes) ─▶ body (body_seconds) ─▶ answer (idle_seconds per buffer)
"""

from asyncio import TimerHandle
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from elman.serving.errors import ApiError
from elman.serving.requests import HEADERS
from elman.serving.settings import ServeConfig

CHUNK_OVERHEAD = 8  # bytes around a chunk of one byte of a body
SLACK = 1.0  # seconds for the application to answer that time is up, before the connection is closed


class LimitedProtocol(HttpToolsProtocol):
    settings: ClassVar[ServeConfig]

    def connection_made(self, transport: Any) -> None:
        self._refusal: ApiError | None = None
        self._pending = 0  # bytes that arrived for this request and are in no complete header and no body
        self._header_bytes = self._body_bytes = 0
        self._arrival: TimerHandle | None = None
        self._reading: TimerHandle | None = None
        self._refused = len(self.connections) >= self.settings.connections
        if self._refused:
            self.transport = transport
            self._send_error(ApiError(503, "too many connections; try again later", headers={"Retry-After": "1"}))
            return
        super().connection_made(transport)
        self._expect(self.settings.header_seconds, self._headers_are_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(0)
        self._stop_watching_reader()
        if not self._refused:
            super().connection_lost(exc)

    # What arrives

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._arrival is None:  # the first bytes after a request
            self._pending = 0
            self._expect(self.settings.header_seconds, self._headers_are_late)
        self._pending += len(data)
        super().data_received(data)
        if self._pending > self.settings.header_bytes + CHUNK_OVERHEAD * self._body_bytes:
            self._send_error(self._too_many_headers())

    def on_message_begin(self) -> None:
        self._header_bytes = self._body_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of trailers too, which would grow the list of headers without end."""
        size = len(name) + len(value) + 4
        self._pending -= size
        self._header_bytes += size
        if len(self.headers) >= self.settings.headers or self._header_bytes > self.settings.header_bytes:
            self._refusal = self._too_many_headers()
            raise ValueError("too many headers")  # ends parsing, which answers with `send_400_response`
        super().on_header(name, value)

    def _too_many_headers(self) -> ApiError:
        return ApiError(431, f"at most {self.settings.headers} headers of {self.settings.header_bytes} bytes are read")

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):  # with an address in it, which would count more than Host
            self._refusal = ApiError(400, "a request line has a path that begins with /")
            raise ValueError("absolute form")
        self._expect(self.settings.body_seconds + SLACK, self._body_is_late)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending -= len(body)
        self._body_bytes += len(body)
        if self._body_bytes > self.settings.state_bytes and self.cycle.response_complete:
            self.transport.abort()  # until then it is read, since a client that cannot send on may not see the answer
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expect(0)
        super().on_message_complete()

    def _expect(self, seconds: float, late: Any = None) -> None:
        """Sets the time that the next part of a request may take; 0 stops waiting for one."""
        if self._arrival is not None:
            self._arrival.cancel()
        self._arrival = self.loop.call_later(seconds, late) if seconds else None

    def _headers_are_late(self) -> None:
        self._send_error(ApiError(408, f"no complete headers within {self.settings.header_seconds:g} seconds"))

    def _body_is_late(self) -> None:
        self.transport.abort()

    # What is answered

    def send_400_response(self, msg: str) -> None:
        self._send_error(self._refusal or ApiError(400, "this is no valid HTTP/1.1 request"))

    def _send_error(self, error: ApiError) -> None:
        """An answer outside of the application; the connection ends with it, at once where another answer has begun."""
        if self._is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        body = error.json()
        lines = [*HEADERS.items(), (b"content-type", b"application/json"), (b"connection", b"close")]
        lines += [(name.encode(), value.encode()) for name, value in (error.headers or {}).items()]
        lines.append((b"content-length", str(len(body)).encode()))
        head = b"".join(b"%s: %s\r\n" % line for line in lines)
        self.transport.write(STATUS_LINE[error.status_code] + head + b"\r\n" + body)
        self._close()

    def _is_closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def _close(self) -> None:
        """Closes once all is sent, or after a while."""
        self.transport.close()
        self.loop.call_later(self.settings.idle_seconds, self.transport.abort)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(self.settings.idle_seconds, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._close()

    # Slow readers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(self.settings.idle_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_watching_reader()
        super().resume_writing()

    def _stop_watching_reader(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def limited_protocol(settings: ServeConfig) -> type[LimitedProtocol]:
    """The protocol with these limits."""
    return type("Protocol", (LimitedProtocol,), {"settings": settings})
