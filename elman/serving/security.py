"""Who may ask: pure ASGI middleware that refuses before any route runs. Everything needs a token but `PUBLIC`.

A web page that somebody opens may send requests to servers on the same machine, and DNS rebinding makes its own host
name lead there. So four checks stand together: the exact Host, the Origin, the content type that forms cannot send, and
a token. They read the ASGI scope only, never a URL rebuilt from headers, and do not depend on the server that runs it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from elman.serving.errors import ApiError
from elman.serving.settings import ServeConfig
from elman.serving.tokens import Tokens

PUBLIC = frozenset({"/", "/health"})
"""Paths that answer without a token, and without anything that is not public."""
BINARY = frozenset({"/v1/sessions"})
"""Paths that take a body of bytes as well as JSON."""
JSON, BYTES = "application/json", "application/octet-stream"
ANONYMOUS = "anonymous"  # the owner of requests where no token is needed
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS = {"http": "80", "https": "443"}

Headers = dict[bytes, list[bytes]]


class Security:
    """Middleware; sets `scope["elman.owner"]`, which is None where a public path is asked for without a token."""

    def __init__(self, app: Any, settings: ServeConfig, tokens: Tokens | None, port: Callable[[], int]):
        self.app, self.settings, self.tokens, self.port = app, settings, tokens, port

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets; returning refuses the handshake
        try:
            headers = self.grouped(scope)
            self.check_site(scope, headers)
            scope["elman.owner"] = self.owner(scope, headers)
            limit = self.check_body(scope, headers)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        await self.app(scope, LimitedBody(receive, limit, self.settings.body_seconds), send)

    def grouped(self, scope: Any) -> Headers:
        """All values of each header."""
        pairs, settings = scope["headers"], self.settings
        size = (
            len(scope.get("raw_path") or b"") + len(scope["query_string"]) + sum(len(n) + len(v) + 4 for n, v in pairs)
        )
        if len(pairs) > settings.headers or size > settings.header_bytes:
            raise ApiError(431, f"at most {settings.headers} headers of {settings.header_bytes} bytes are read")
        grouped: Headers = {}
        for name, value in pairs:
            grouped.setdefault(name.lower(), []).append(value.strip())
        return grouped

    # Host, Origin, fetch metadata

    def hosts(self, scope: Any) -> Iterator[str]:
        """Every value of Host that is ours."""
        port, proxy, address = str(self.port()), self.settings.behind_proxy, (scope.get("server") or ("",))[0]
        names = [*LOOPBACK, self.settings.host, address]  # a page cannot be rebound to an address, only to a name
        for name in dict.fromkeys(filter(None, names)):
            bare = f"[{name}]" if ":" in name and not name.startswith("[") else name
            yield f"{bare}:{port}".lower()
            if port == DEFAULT_PORTS[self.scheme]:
                yield bare.lower()
        for name in self.settings.allowed_hosts:
            yield name.lower()
            if ":" not in name and not proxy:
                yield f"{name}:{port}".lower()

    @property
    def scheme(self) -> str:
        return "https" if self.settings.tls else "http"

    def check_site(self, scope: Any, headers: Headers) -> None:
        known = {*self.hosts(scope)}
        given = [value.decode("latin-1").lower() for value in headers.get(b"host", [])]
        if len(given) != 1 or given[0] not in known:
            raise ApiError(421, "the Host header names another server; allowed_hosts adds names of this one")
        schemes = ("http", "https") if self.settings.behind_proxy else (self.scheme,)
        origins = {f"{scheme}://{host}" for scheme in schemes for host in known}
        if any(value.decode("latin-1").lower() not in origins for value in headers.get(b"origin", [])):
            raise ApiError(403, "requests of pages of other origins are refused")
        if any(value not in (b"same-origin", b"none") for value in headers.get(b"sec-fetch-site", [])):
            raise ApiError(403, "requests of pages of other sites are refused")

    # Tokens

    def owner(self, scope: Any, headers: Headers) -> str | None:
        """Who asks, by the token."""
        if self.tokens is None:
            return ANONYMOUS
        given = headers.get(b"authorization", [])
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        owner = self.tokens.owner(token.strip()) if scheme.lower() == b"bearer" else None
        if owner is None and scope["path"] not in PUBLIC:
            raise ApiError(
                401,
                "a token is needed: send the header Authorization: Bearer TOKEN with one that this server knows",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return owner

    # Bodies

    def check_body(self, scope: Any, headers: Headers) -> int:
        """The largest size of the body; an error for what is known to be larger, or of another type."""
        length, types = headers.get(b"content-length", []), headers.get(b"content-type", [])
        if len(length) > 1 or any(not value.isdigit() for value in length):
            raise ApiError(400, "content-length: is one whole number")
        size, chunked = int(length[0][:20]) if length else 0, b"transfer-encoding" in headers
        allowed = [JSON, BYTES] if scope["path"] in BINARY else [JSON]
        given = types[0].decode("latin-1").partition(";")[0].strip().lower() if len(types) == 1 else ""
        if (size or chunked or types) and given not in allowed:
            raise ApiError(415, f"content-type: a body is sent as {' or '.join(allowed)}")
        most = self.settings.state_bytes if given == BYTES else self.settings.body_bytes
        if size > most:
            raise too_large(most)
        return most


def too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most} bytes")


class LimitedBody:
    """`receive` of an ASGI application that ends with an error where a body is too long, or takes too long."""

    def __init__(self, receive: Any, most: int, seconds: float):
        self._receive, self._left, self._most = receive, most, most
        self._seconds, self._until = seconds, 0.0
        self._complete = False

    async def __call__(self) -> Any:
        if self._complete:
            return await self._receive()
        self._until = self._until or asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            message = f"the body did not arrive within {self._seconds:g} seconds"
            raise ApiError(408, message, headers={"Connection": "close"}) from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large(self._most)
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message
