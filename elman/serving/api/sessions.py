"""`/v1/sessions`: texts whose state the server keeps, or gives away as a value."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from elman.generation.sampling import GenerationConfig
from elman.serving.api.event_stream import unless_gone
from elman.serving.api.sampling_fields import Tokens
from elman.serving.api.text_call import check_prompt, complete, decode_state, make_texts, session_errors
from elman.serving.api.text_service import TextService, described, owner_of, position_of, text_service
from elman.serving.errors import ApiError
from elman.serving.generation import Snapshot
from elman.serving.session_store import Session
from elman.serving.text_model import TextModel

router = APIRouter(prefix="/v1/sessions")
STATE = "application/octet-stream"


class SessionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: Annotated[str, Field(max_length=256)] | None = None
    prompt: str | Tokens = ""
    """Text or token ids that the session begins with."""
    state: str | None = None
    """Restore this state instead: base64 of what `GET /v1/sessions/{id}/state` or `return_state` gave."""


@router.post("", status_code=201)
async def create_session(body: SessionRequest, request: Request) -> Response:
    """A new session, of a prompt or of a saved state."""
    service = text_service(request)
    if body.state is not None and body.prompt:
        raise ApiError(400, "a state and a prompt both say how the session begins; leave one out", "state")
    return JSONResponse(await unless_gone(request, _create(body, request, service)), 201)


async def _create(body: SessionRequest, request: Request, service: TextService) -> dict[str, Any]:
    owner = owner_of(request)
    async with service.open(request, body.model) as model:
        with session_errors():
            if body.state is not None:
                snapshot = service.signer.unpack(decode_state(body.state), model.digest, model.initial)
            else:
                check_prompt(body.prompt, model, service.config)
                snapshot = await _read(model, body.prompt, owner)
            return await _store(service, model, owner, snapshot)


async def _read(model: TextModel, text: str | list[int], owner: str) -> Snapshot:
    """The text so far; its last token stays pending, so that the next one can be drawn."""
    prompt = model.prompt(text)
    *read, last = prompt.known
    if not read:
        return Snapshot(model.initial, (last,), 0, ())
    known = prompt._replace(known=read)
    (made,) = make_texts(model, known, GenerationConfig(), 0, 1, keep=True, owner=owner)
    await complete(model, [made])
    assert made.snapshot is not None
    return made.snapshot._replace(pending=(last,), tail=(*made.snapshot.tail, last))


async def _store(service: TextService, model: TextModel, owner: str, snapshot: Snapshot) -> dict[str, Any]:
    data = service.signer.pack(snapshot, model.digest, service.config.session_seconds)
    session = await service.sessions.create(owner, model.name, model.digest, position_of(snapshot), data)
    return described(session, service.sessions)


@router.get("/{id}")
async def read_session(id: str, request: Request) -> Response:
    service = text_service(request)
    return JSONResponse(described(await _found(service, request, id), service.sessions))


@router.post("/{id}/fork", status_code=201)
async def fork_session(id: str, request: Request) -> Response:
    """A second session with the same text so far."""
    service = text_service(request)
    found = await _found(service, request, id)
    with session_errors():
        made = await service.sessions.create(found.owner, found.model, found.digest, found.position, found.state)
    return JSONResponse(described(made, service.sessions), 201)


@router.get("/{id}/state")
async def read_state(id: str, request: Request) -> Response:
    """The state as a signed safetensors file: any server with the same key and model goes on from it."""
    found = await _found(text_service(request), request, id)
    return Response(found.state, media_type=STATE)


@router.delete("/{id}")
async def delete_session(id: str, request: Request) -> Response:
    service = text_service(request)
    with session_errors():
        await service.sessions.delete(owner_of(request), id)
    return JSONResponse({"id": id, "object": "session", "deleted": True})


async def _found(service: TextService, request: Request, id: str) -> Session:
    with session_errors():
        return await service.sessions.get(owner_of(request), id)
