"""A server in this process and its client, each call of which runs the event loop until it is answered."""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import httpx

from elman.serving.app import create_app
from elman.serving.models import ModelPool
from elman.serving.settings import ServeConfig
from elman.serving.tokens import Tokens, token_of

SECRET, OTHER = "a-token-of-the-tests", "another-token-of-them"
TOKENS = Tokens([token_of(f"ann:{SECRET}"), token_of(f"bob:{OTHER}")])
BEARER, OTHERS = ({"Authorization": f"Bearer {token}"} for token in (SECRET, OTHER))
ADDRESS = "http://127.0.0.1:8000"
LEAK = re.compile(rb'Traceback|\.py\b|File "|site-packages|/(tmp|home|root|work|usr|var|opt|proc)/')

Found = TypeVar("Found")


class Client:
    def __init__(self, models: Sequence[Any], tokens: Tokens | None = TOKENS, **settings: Any):
        self.settings = ServeConfig.make(settings)
        self.pool = ModelPool(models, self.settings)
        self.app = create_app(self.pool, self.settings, tokens)
        self.runner = asyncio.Runner()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=ADDRESS, timeout=None)

    def ask(self, method: str, path: str, headers: Any = BEARER, **more: Any) -> httpx.Response:
        return self.run(self.http.request(method, path, headers=headers, **more))

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.ask("POST", path, json=body, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def together(self, path: str, bodies: Sequence[Any]) -> list[httpx.Response]:
        """Answers to requests that are there at the same time."""

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(self.http.post(path, json=one, headers=BEARER) for one in bodies))

        return self.run(all_of_them())

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        return self.runner.run(work)

    def close(self) -> None:
        self.run(self.http.aclose())
        self.run(self.pool.close())
        self.app.state.sessions.close()
        self.runner.close()


def wrong_refusal(status: int, content: bytes, kind: str = "application/json") -> list[str]:
    """What is wrong with an answer that should be an error of the 400s: status, form, size, or what it says."""
    found = [] if 400 <= status < 500 else [f"status {status}: {content[:300]!r}"]
    return found + wrong_answer(status, content, kind)


def wrong_answer(status: int, content: bytes, kind: str = "application/json") -> list[str]:
    """What no answer may be or say."""
    found = [f"status 500: {content[:300]!r}"] if status == 500 else []
    if status >= 400 and (len(content) > 4096 or kind != "application/json" or not content.startswith(b'{"error":{')):
        found.append(f"an error of {len(content)} bytes as {kind}: {content[:200]!r}")
    if match := LEAK.search(content):
        found.append(f"says {match[0]!r}: {content[:300]!r}")
    if SECRET.encode() in content or OTHER.encode() in content:
        found.append("says a token")
    return found
