"""`/v1/sessions`: texts whose state the server keeps, or gives away as a value."""

from typing import Annotated, Any

from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response

from elman.generation.sampling import GenerationConfig
from elman.serving.api.routing import Body, JsonRequest, Serving, router
from elman.serving.api.sampling_fields import Tokens
from elman.serving.api.text_call import check_prompt, decode_state, make_texts, session_errors
from elman.serving.api.text_service import TextService, described, position_of
from elman.serving.errors import ApiError
from elman.serving.generation import Snapshot
from elman.serving.security import BYTES, JSON
from elman.serving.session_store import Session
from elman.serving.text_model import TextModel

api = router()


class SessionRequest(Body):
    model: Annotated[str, Field(max_length=256)] | None = None
    prompt: str | Tokens = ""
    """Text or token ids that the session begins with."""
    state: str | None = None
    """Restore this state instead: base64 of what `GET /v1/sessions/{id}/state` or `return_state` gave."""


BODIES = {
    JSON: {"schema": SessionRequest.model_json_schema()},
    BYTES: {"schema": {"type": "string", "format": "binary"}},
}


@api.post("/v1/sessions", status_code=201, openapi_extra={"requestBody": {"content": BODIES, "required": True}})
async def create_session(server: Serving, model: Annotated[str | None, Query(max_length=256)] = None) -> Response:
    """A new session, of a prompt or of a saved state.

    The body is JSON, or the bytes that `GET /v1/sessions/{id}/state` gave, with the model as a query parameter.
    """
    request = JsonRequest(server.request.scope, server.request.receive)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == BYTES:
        body, data = SessionRequest(model=model), await request.body()
    else:
        try:
            body, data = SessionRequest.model_validate(await request.json()), None
        except ValidationError as error:
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
        if body.state is not None:
            if body.prompt:
                raise ApiError(400, "a state and a prompt both say how the session begins; leave one out", "state")
            data = decode_state(body.state)
    return JSONResponse(await server.while_connected(_create(body, data, TextService(server))), 201)


async def _create(body: SessionRequest, data: bytes | None, service: TextService) -> dict[str, Any]:
    owner = service.owner
    async with service.open(body.model) as model:
        with session_errors():
            if data is not None:
                snapshot = service.signer.unpack(data, model.digest, model.initial)
            else:
                check_prompt(body.prompt, model, service.config)
                snapshot = await _read(service, model, body.prompt)
            return await _store(service, model, owner, snapshot)


async def _read(service: TextService, model: TextModel, text: str | list[int]) -> Snapshot:
    """The text so far; its last token stays pending, so that the next one can be drawn."""
    prompt = model.prompt(text)
    *read, last = prompt.known
    if not read:
        return Snapshot(model.initial, (last,), 0, ())
    known = prompt._replace(known=read)
    (made,) = make_texts(model, known, GenerationConfig(), 0, 1, keep=True, owner=service.owner)
    await service.complete(model, [made])
    assert made.snapshot is not None
    return made.snapshot._replace(pending=(last,), tail=(*made.snapshot.tail, last))


async def _store(service: TextService, model: TextModel, owner: str, snapshot: Snapshot) -> dict[str, Any]:
    data = service.signer.pack(snapshot, model.digest, service.config.session_seconds)
    session = await service.sessions.create(owner, model.name, model.digest, position_of(snapshot), data)
    return described(session, service.sessions)


@api.get("/v1/sessions/{id}")
async def read_session(id: str, server: Serving) -> Response:
    service = TextService(server)
    return JSONResponse(described(await _found(service, id), service.sessions))


@api.post("/v1/sessions/{id}/fork", status_code=201)
async def fork_session(id: str, server: Serving) -> Response:
    """A second session with the same text so far."""
    service = TextService(server)
    found = await _found(service, id)
    with session_errors():
        state = service.signer.renew(found.state, service.config.session_seconds)
        made = await service.sessions.create(found.owner, found.model, found.digest, found.position, state)
    return JSONResponse(described(made, service.sessions), 201)


@api.get("/v1/sessions/{id}/state", response_class=Response, responses={200: {"content": {BYTES: BODIES[BYTES]}}})
async def read_state(id: str, server: Serving) -> Response:
    """The state as a signed safetensors file: any server with the same key and model goes on from it."""
    found = await _found(TextService(server), id)
    return Response(found.state, media_type=BYTES)


@api.delete("/v1/sessions/{id}")
async def delete_session(id: str, server: Serving) -> Response:
    service = TextService(server)
    with session_errors():
        await service.sessions.delete(service.owner, id)
    return JSONResponse({"id": id, "object": "session", "deleted": True})


async def _found(service: TextService, id: str) -> Session:
    with session_errors():
        found = await service.sessions.get(service.owner, id)
    if not found.digest:  # a stored response, which has no state
        raise ApiError(404, f"there is no session {id[:64]!r}", "session", "session_not_found")
    return found
