"""A server in this process and its client, each call of which runs the event loop until it is answered."""

import asyncio
import threading
from dataclasses import dataclass, field

import httpx

from elman.serving.app import create_app
from elman.serving.models import ModelPool
from elman.serving.settings import ServeConfig
from elman.serving.tokens import Tokens, token_of

SECRET = "a-token-of-the-tests"
OTHER = "another-token-of-them"
TOKENS = Tokens([token_of(f"ann:{SECRET}"), token_of(f"bob:{OTHER}")])
BEARER = {"Authorization": f"Bearer {SECRET}"}
ADDRESS = "http://127.0.0.1:8000"


class Client:
    def __init__(self, models, tokens=TOKENS, **settings):
        self.settings = ServeConfig.make(settings)
        self.pool = ModelPool(models, self.settings)
        self.app = create_app(self.pool, self.settings, tokens)
        self.runner = asyncio.Runner()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=ADDRESS, timeout=None)

    def ask(self, method, path, headers=BEARER, **more):
        return self.run(self.http.request(method, path, headers=headers, **more))

    def post(self, path, body, **more):
        return self.ask("POST", path, json=body, **more)

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def together(self, path, bodies):
        """Answers to requests that are there at the same time."""

        async def all_of_them():
            return await asyncio.gather(*(self.http.post(path, json=one, headers=BEARER) for one in bodies))

        return self.run(all_of_them())

    def run(self, work):
        return self.runner.run(work)

    def close(self):
        self.run(self.http.aclose())
        self.run(self.pool.close())
        self.runner.close()


@dataclass
class Gate:
    """Holds the thread that predicts until it is opened; `entered` says that the thread is there."""

    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    lines: list = field(default_factory=list)

    def hold(self, monkeypatch, trained):
        predict = trained.predict

        def held(lines, **more):
            self.lines.append(list(lines))
            self.entered.set()
            assert self.opened.wait(60)
            return predict(lines, **more)

        monkeypatch.setattr(trained, "predict", held)
        return self


def error_of(response):
    """The error of a response, whose shape is checked."""
    assert response.headers["content-type"] == "application/json"
    assert len(response.content) <= 4096
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert all(error[name] is None or isinstance(error[name], str) for name in ("type", "param", "code"))
    assert "Traceback" not in response.text
    assert SECRET not in response.text
    return error
