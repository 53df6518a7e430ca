"""Routes of tasks that answer whole texts: one for each `endpoint` of a task, such as POST /classify."""

import time
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from elman.errors import brief
from elman.pipeline.tasks import TASKS
from elman.serving.api.routing import Body, Serving, chosen, router, routes_of
from elman.serving.errors import ApiError
from elman.serving.models import Entry
from elman.serving.predictor import Options, Predictor
from elman.serving.settings import ServeConfig

Line = str | dict[str, str | Annotated[list[str], Field(fail_fast=True)]]


class TaskRequest(Body):
    model: str | None = None
    """May be left out where one model is served."""
    input: Line | Annotated[list[Line], Field(min_length=1, fail_fast=True)]
    """A text or several; or objects with the fields that `elman predict` reads, such as {"words": ["a", "dog"]}."""
    probabilities: bool | None = None
    """Whether answers have probabilities; a translation then has all its candidates."""
    beam_size: Annotated[int, Field(ge=1)] | None = None
    """Hypotheses of a translation's search."""
    user: str | None = None
    """Ignored; other clients send it."""


def task_routes() -> APIRouter:
    """A route for each endpoint of all registered tasks."""
    api = router()
    for endpoint in dict.fromkeys(filter(None, (TASKS[name].endpoint for name in TASKS))):
        _add_route(api, endpoint)
    return api


def _add_route(api: APIRouter, endpoint: str) -> None:
    @api.post(f"/{endpoint}", name=endpoint)
    async def answer(body: TaskRequest, server: Serving) -> dict[str, Any]:
        begun = time.monotonic()
        entry = chosen(server, body.model)
        if entry.task.endpoint != endpoint:
            listed = ", ".join(routes_of(entry))
            raise ApiError(400, f"model {entry.id!r} does not answer here, but at {listed}", param="model")
        lines = body.input if isinstance(body.input, list) else [body.input]
        check_lines(lines, entry, server.settings)
        options = options_of(body, entry, server.settings)
        async with server.pool.use(entry.id) as served:
            found = await server.while_connected(served.worker(Predictor).submit(lines, options))
        read, written = found.tokens
        metrics = server.metrics
        metrics.prompt_tokens.labels(entry.id).inc(read)
        metrics.generation_tokens.labels(entry.id).inc(written)
        metrics.queue.labels(entry.id).observe(found.waited)
        metrics.latency.labels(entry.id).observe(time.monotonic() - begun)
        metrics.success.labels(entry.id, "stop").inc()
        return {
            "object": "list",
            "model": entry.id,
            "data": [{"index": index, **one} for index, one in enumerate(found.answers)],
            **served.trained.task.served_facts(),
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }


def check_lines(lines: list[Any], entry: Entry, settings: ServeConfig) -> None:
    """An error for more or longer texts than are taken, before anything is computed."""
    if len(lines) > settings.max_inputs:
        reason = f"input: {len(lines)} texts, but a request takes at most {settings.max_inputs}; send several requests"
        raise ApiError(400, reason, param="input")
    for index, line in enumerate(lines):
        parts = [line] if isinstance(line, str) else [*line, *line.values()]
        unknown = [] if isinstance(line, str) else [name for name in line if name not in entry.task.inputs]
        if unknown:
            known = ", ".join(entry.task.inputs)
            raise ApiError(400, f"input.{index}: unknown field {brief(unknown[0])}; known: {known}", param="input")
        texts = [text for part in parts for text in (part if isinstance(part, list) else [part])]
        size = sum(len(text.encode()) for text in texts)
        if size > settings.prompt_bytes:
            reason = f"input.{index}: {size} bytes, but a text has at most {settings.prompt_bytes}; cut it into several"
            raise ApiError(400, reason, param="input")


def options_of(body: TaskRequest, entry: Entry, settings: ServeConfig) -> Options:
    task = entry.task
    if body.probabilities and not task.has_probabilities:
        raise ApiError(400, "probabilities: the answers of this model have none; leave it out", param="probabilities")
    if body.beam_size is not None and not task.searches:
        raise ApiError(400, "beam_size: only translations are searched for; leave it out", param="beam_size")
    if (body.beam_size or 0) > settings.max_choices:
        reason = f"beam_size: {body.beam_size}, but at most {settings.max_choices} are allowed"
        raise ApiError(400, reason, param="beam_size")
    asked = task.gives_probabilities if body.probabilities is None else body.probabilities
    return Options(asked, body.beam_size)
