"""`/v1/responses`: an answer to a text or a chat, which later requests continue by its id.

What is stored is the chat; the state after its beginning is found in the prefix cache.
"""

import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import JSONResponse, Response

from elman.serving.api.chat import MAX_TOKENS, Message, TextFormat, Trimmed
from elman.serving.api.event_stream import EventStream, event, primed
from elman.serving.api.routing import Body, Serving, router
from elman.serving.api.sampling_fields import SamplingFields
from elman.serving.api.text_call import (
    Text,
    check_count,
    check_prompt,
    make_texts,
    session_errors,
    usage,
)
from elman.serving.api.text_service import TextService
from elman.serving.errors import ApiError
from elman.serving.sessions import NoSession
from elman.serving.text_model import TextModel

api = router()
PREFIX = "resp_"


class InputMessage(Message):
    type: Literal["message"] = "message"
    id: Annotated[str, Field(max_length=128)] | None = None
    status: Annotated[str, Field(max_length=32)] | None = None


class TextSettings(Body):
    format: TextFormat | None = None


class ResponseRequest(SamplingFields):
    input: str | Annotated[list[InputMessage], Field(min_length=1)]
    """A text of the user, or messages."""
    instructions: str | None = None
    """A message of the system before all others; not kept for later responses."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Default 256."""
    previous_response_id: Annotated[str, Field(max_length=128)] | None = None
    """Continue the chat that ended with this response; it may be continued any number of times."""
    store: bool | None = None
    """Keep the response, so that it can be continued; default true."""
    text: TextSettings | None = None
    truncation: Literal["disabled"] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    """Not supported."""
    stream_options: None = None


Chat = list[tuple[str, str]]  # role, content


def new_id() -> str:
    return PREFIX + secrets.token_urlsafe(18)


@api.post("/v1/responses")
async def create_response(body: ResponseRequest, server: Serving) -> Response:
    """Answers a text or a chat."""
    service = TextService(server)
    service.check_fields(body)
    check_count(body.max_output_tokens or MAX_TOKENS, service.config.max_tokens, "max_output_tokens")
    if body.stream:
        return EventStream(await primed(_events(body, service)))
    return JSONResponse(await server.while_connected(_whole(body, service)))


@api.get("/v1/responses/{id}")
async def read_response(id: str, server: Serving) -> Response:
    """A stored response."""
    return JSONResponse((await _stored(TextService(server), id))["response"])


@api.delete("/v1/responses/{id}")
async def delete_response(id: str, server: Serving) -> Response:
    service = TextService(server)
    await _stored(service, id)
    with session_errors():
        await service.sessions.delete(service.owner, id.removeprefix(PREFIX))
    return JSONResponse({"id": id, "object": "response", "deleted": True})


async def _stored(service: TextService, id: str) -> dict[str, Any]:
    try:
        session = await service.sessions.get(service.owner, id.removeprefix(PREFIX))
        if not id.startswith(PREFIX) or session.digest:
            raise NoSession
    except NoSession:
        message = f"there is no response {id[:64]!r}; it may have expired or been deleted"
        raise ApiError(404, message, "previous_response_id", "response_not_found") from None
    return json.loads(session.state)


async def _chat(body: ResponseRequest, service: TextService) -> Chat:
    """The messages so far, without instructions."""
    chat: Chat = []
    if body.previous_response_id is not None:
        chat = [(role, content) for role, content in (await _stored(service, body.previous_response_id))["chat"]]
    new = [("user", body.input)] if isinstance(body.input, str) else [message.plain() for message in body.input]
    return chat + new


def _text(body: ResponseRequest, chat: Chat, model: TextModel, service: TextService, owner: str) -> Text:
    service.check_bias(body, model)
    instructions = [("system", body.instructions)] if body.instructions else []
    written = service.chat_format.text([*instructions, *chat])
    check_prompt(written, model, service.config, "input")
    settings = body.settings(stop=[*body.stops(), *service.chat_format.stop])
    limit = body.max_output_tokens or MAX_TOKENS
    return make_texts(model, model.prompt(written), settings, limit, 1, owner=owner)[0]


async def _whole(body: ResponseRequest, service: TextService) -> dict[str, Any]:
    async with service.open(body.model) as model:
        chat = await _chat(body, service)
        text = _text(body, chat, model, service, service.owner)
        await service.complete(model, [text])
        return await _finish(body, service, model, chat, text, new_id(), int(time.time()))


async def _events(body: ResponseRequest, service: TextService) -> AsyncGenerator[bytes]:
    id, created, number = new_id(), int(time.time()), 0

    def numbered(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        return event({"type": kind, "sequence_number": number - 1, **fields}, kind)

    async with service.open(body.model) as model:
        chat = await _chat(body, service)
        text = _text(body, chat, model, service, service.owner)
        trim, begun = Trimmed(service.chat_format.strip), False
        item = _item("in_progress")
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        async for batch in service.outputs(model, [text]):
            new = "".join(trim.push(one.add(output)) for one, output in batch)
            events = []
            if not begun:
                begun = True
                opening = _response(body, model, id, created, "in_progress", [], None)
                empty = _part("")
                events += [
                    numbered("response.created", response=opening),
                    numbered("response.in_progress", response=opening),
                    numbered("response.output_item.added", output_index=0, item=item | {"content": []}),
                    numbered("response.content_part.added", **place, part=empty),
                ]
            if new:
                events.append(numbered("response.output_text.delta", **place, delta=new, logprobs=[]))
            yield b"".join(events)
        final = await _finish(body, service, model, chat, text, id, created, item["id"])
        whole = final["output"][0]["content"][0]
        yield numbered("response.output_text.done", **place, text=whole["text"], logprobs=[])
        yield numbered("response.content_part.done", **place, part=whole)
        yield numbered("response.output_item.done", output_index=0, item=final["output"][0])
        yield numbered(f"response.{final['status']}", response=final)


async def _finish(
    body: ResponseRequest,
    service: TextService,
    model: TextModel,
    chat: Chat,
    text: Text,
    id: str,
    created: int,
    item: str = "",
) -> dict[str, Any]:
    """The response, stored if asked for."""
    answer = text.text.strip() if service.chat_format.strip else text.text
    complete = text.finish_reason == "stop"
    output = _item("completed" if complete else "incomplete", answer, item)
    status = "completed" if complete else "incomplete"
    response = _response(body, model, id, created, status, [output], usage([text]))
    if body.store is not False:
        kept = json.dumps({"chat": [*chat, ("assistant", answer)], "response": response}).encode()
        with session_errors():
            await service.sessions.create(service.owner, model.name, "", len(chat) + 1, kept, id.removeprefix(PREFIX))
    return response


def _item(status: str, text: str | None = None, id: str = "") -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    id = id or f"msg_{secrets.token_hex(12)}"
    return {"id": id, "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(
    body: ResponseRequest,
    model: TextModel,
    id: str,
    created: int,
    status: str,
    output: list[dict[str, Any]],
    counted: dict[str, Any] | None,
) -> dict[str, Any]:
    counts = counted and {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": counted["prompt_tokens_details"],
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted["total_tokens"],
    }
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": model.name,
        "output": output,
        "parallel_tool_calls": False,
        "previous_response_id": body.previous_response_id,
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": counts,
    }
