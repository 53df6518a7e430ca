"""The ASGI application: middleware around the routes of `api/`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

import elman
from elman.serving.api import chat, completions, operations, responses, sessions, tasks, tokenizer
from elman.serving.chat_format import read_chat_format
from elman.serving.errors import HANDLERS
from elman.serving.metrics import Metrics
from elman.serving.models import ModelPool
from elman.serving.requests import Exchange, Requests
from elman.serving.security import Security
from elman.serving.sessions import Sessions
from elman.serving.settings import ServeConfig
from elman.serving.signed_state import StateSigner, read_key
from elman.serving.tokens import Tokens

ROUTERS = (operations.api, tokenizer.api, completions.api, chat.api, responses.api, sessions.api)
"""A new family of routes is a module with `api = router()`, and its name here."""


def create_app(
    pool: ModelPool,
    settings: ServeConfig,
    tokens: Tokens | None = None,
    port: Callable[[], int] | None = None,
    sessions: Any = None,
    key: bytes | None = None,
) -> FastAPI:
    """The application for these models; without `tokens` nobody needs one. `port` tells the one that is listened on.

    Replicas share their `sessions`, and the `key` that states are signed with.
    """
    metrics, running = Metrics(pool.loads), set[Exchange]()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await pool.close()
        app.state.sessions.close()

    app = FastAPI(
        title="elman",
        version=elman.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        middleware=[
            Middleware(Requests, settings=settings, metrics=metrics, running=running),
            Middleware(Security, settings=settings, tokens=tokens, port=port or (lambda: settings.port)),
        ],
    )
    app.state.pool, app.state.settings, app.state.metrics = pool, settings, metrics
    app.state.running, app.state.ending = running, False
    app.state.sessions = Sessions.of(settings) if sessions is None else sessions
    app.state.signer = StateSigner(key or read_key(settings.state_key, settings.sessions))
    app.state.chat_format = read_chat_format(settings.chat_template)
    for router in (*ROUTERS, tasks.task_routes()):  # tasks of a user's are registered by now
        app.include_router(router)
    return app
