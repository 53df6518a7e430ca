"""What all routes share: JSON read within limits, the models of the server, and clients that leave."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json
from starlette.responses import Response

from elman.serving.errors import ApiError
from elman.serving.metrics import Metrics
from elman.serving.models import Entry, ModelPool
from elman.serving.security import ANONYMOUS
from elman.serving.settings import ServeConfig

Answer = TypeVar("Answer")
GENERATION = "v1/completions"


class Body(BaseModel):
    """A JSON body: unknown fields are errors, and "3" is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class JsonRequest(Request):
    async def json(self) -> Any:
        """Python's own parser takes NaN, nests until its stack ends, and fails on numbers of 5,000 digits."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(400, f"the body is no JSON: {error}") from None


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await answer(JsonRequest(request.scope, request.receive))

        return handle


def router() -> APIRouter:
    return APIRouter(route_class=JsonRoute)


class Server:
    """What a route may use: the models, settings and figures of the server, and the request itself."""

    def __init__(self, request: Request):
        self.request = request
        state = request.app.state
        self.pool: ModelPool = state.pool
        self.settings: ServeConfig = state.settings
        self.metrics: Metrics = state.metrics
        self.owner: str | None = request.scope["elman.owner"]
        self.anonymous = self.owner == ANONYMOUS
        self.request_id: str = request.scope["elman.request_id"]

    async def while_connected(self, work: Awaitable[Answer]) -> Answer:
        """The result of some work, which is cancelled where the client closes the connection before that."""
        job = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise ApiError(499, "the client has closed the connection", code="disconnected")
        finally:
            for task in (job, gone):
                task.cancel()

    async def _gone(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


def chosen(server: Server, model: str | None) -> Entry:
    """The model of a request; the only one where none is named."""
    if model is None and len(server.pool.ids) > 1:
        listed = ", ".join(server.pool.ids)
        raise ApiError(400, f"model: is required where several are served; one of {listed}", param="model")
    return server.pool.entry(server.pool.ids[0] if model is None else model)


def routes_of(entry: Entry) -> list[str]:
    """Where a model answers."""
    return [f"/{entry.task.endpoint or GENERATION}"]


async def server_of(request: Request) -> Server:
    """In the event loop: a class would be called in a thread."""
    return Server(request)


Serving = Annotated[Server, Depends(server_of)]
"""The type of a route's parameter that gets the server."""
