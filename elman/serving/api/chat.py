"""`/v1/chat/completions`: the next message of a chat."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import JSONResponse, Response

from elman.serving.api.event_stream import DONE, EventStream, event, primed
from elman.serving.api.routing import Body, Serving, router
from elman.serving.api.sampling_fields import SamplingFields
from elman.serving.api.text_call import (
    Text,
    all_finished,
    check_count,
    check_prompt,
    joined,
    make_texts,
    random_id,
    usage,
)
from elman.serving.api.text_service import TextService
from elman.serving.errors import ApiError
from elman.serving.generation import Piece
from elman.serving.text_model import TextModel

api = router()
MAX_TOKENS = 256  # where a request does not say
ROLES = {"developer": "system"}


class TextPart(Body):
    type: Literal["text", "input_text", "output_text"]
    text: str


class Message(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    """Text; images and sound are not supported."""
    name: Annotated[str, Field(max_length=64)] | None = None
    """Accepted and ignored."""
    refusal: None = None

    def plain(self) -> tuple[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return ROLES.get(self.role, self.role), content


class TextFormat(Body):
    type: Literal["text"]


class ChatRequest(SamplingFields):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of the answer at most; default 256."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The same."""
    n: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    response_format: TextFormat | None = None
    """Only text is supported."""


@api.post("/v1/chat/completions")
async def create_chat_completion(body: ChatRequest, server: Serving) -> Response:
    """Answers a chat, written out as one text by the chat format of the server."""
    service = TextService(server)
    _check(body, service)
    if body.stream:
        return EventStream(await primed(_events(body, service)))
    return JSONResponse(await server.while_connected(_whole(body, service)))


def _check(body: ChatRequest, service: TextService) -> None:
    service.check_fields(body)
    check_count(body.n or 1, service.config.max_choices, "n")
    check_count(_limit(body), service.config.max_tokens, "max_tokens")
    check_count(body.top_logprobs or 0, service.config.max_logprobs, "top_logprobs")
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs go with logprobs: true", "top_logprobs")


def _limit(body: ChatRequest) -> int:
    return body.max_completion_tokens or body.max_tokens or MAX_TOKENS


def _texts(body: ChatRequest, model: TextModel, service: TextService, owner: str) -> list[Text]:
    service.check_bias(body, model)
    written = service.chat_format.text(message.plain() for message in body.messages)
    check_prompt(written, model, service.config, "messages")
    settings = body.settings(stop=[*body.stops(), *service.chat_format.stop])
    prompt, top = model.prompt(written), body.top_logprobs or 0
    return make_texts(model, prompt, settings, _limit(body), body.n or 1, top=top, owner=owner)


async def _whole(body: ChatRequest, service: TextService) -> dict[str, Any]:
    async with service.open(body.model) as model:
        texts = _texts(body, model, service, service.owner)
        await service.complete(model, texts)
        choices = [_choice(body, model, service, index, text) for index, text in enumerate(texts)]
        return _head(model, "chat.completion") | {"choices": choices, "usage": usage(texts)}


async def _events(body: ChatRequest, service: TextService) -> AsyncGenerator[bytes]:
    options = body.stream_options
    async with service.open(body.model) as model:
        texts = _texts(body, model, service, service.owner)
        head, numbers = _head(model, "chat.completion.chunk"), {id(text): index for index, text in enumerate(texts)}
        trims = {id(text): Trimmed(service.chat_format.strip) for text in texts}

        def chunk(
            index: int, delta: Mapping[str, Any], text: Text | None = None, pieces: Sequence[Piece] = ()
        ) -> bytes:
            listed = {"content": _listed(body, model, pieces)} if body.logprobs else None
            reason = text.finish_reason if text else None
            choice = {"index": index, "delta": delta, "logprobs": listed, "finish_reason": reason}
            extra = {"usage": usage(texts)} if options and options.continuous_usage_stats else {}
            return event(head | {"choices": [choice]} | extra)

        events: list[bytes] = []
        async for batch in service.outputs(model, texts):
            events = []
            for text, outputs in joined(batch):
                if len(text.pieces) == 0:
                    events.append(chunk(numbers[id(text)], {"role": "assistant", "content": ""}, None, ()))
                new = trims[id(text)].push("".join([text.add(output) for output in outputs]))
                pieces = [output for output in outputs if isinstance(output, Piece)]
                events.append(chunk(numbers[id(text)], {"content": new} if new or pieces else {}, text, pieces))
            if not all_finished(texts):
                yield b"".join(events)
        if options and options.include_usage:
            events.append(event(head | {"choices": [], "usage": usage(texts)}))
        yield b"".join([*events, DONE])


class Trimmed:
    """A text without the white space around it, piece by piece."""

    def __init__(self, strip: bool):
        self.strip, self.begun, self.held = strip, False, ""

    def push(self, piece: str) -> str:
        if not self.strip:
            return piece
        text = self.held + piece if self.begun else piece.lstrip()
        certain = text.rstrip()
        self.begun, self.held = self.begun or bool(text), text[len(certain) :]
        return certain


def _head(model: TextModel, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{random_id()}",
        "object": kind,
        "created": int(time.time()),
        "model": model.name,
    }


def _choice(body: ChatRequest, model: TextModel, service: TextService, index: int, text: Text) -> dict[str, Any]:
    content = text.text.strip() if service.chat_format.strip else text.text
    return {
        "index": index,
        "message": {"role": "assistant", "content": content, "refusal": None},
        "logprobs": {"content": _listed(body, model, text.pieces)} if body.logprobs else None,
        "finish_reason": text.finish_reason,
    }


def _listed(body: ChatRequest, model: TextModel, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    def entry(token: int, log_prob: float) -> dict[str, Any]:
        return {"token": model.spelled(token), "logprob": log_prob, "bytes": [*model.tokenizer.spellings[token]]}

    top = body.top_logprobs or 0
    return [
        entry(piece.token, piece.log_prob) | {"top_logprobs": [entry(*one) for one in piece.top[:top]]}
        for piece in pieces
    ]
