"""`/v1/completions`: text after prompts, or the log-probabilities of given text (echo)."""

import time
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse, Response

from elman.serving.api.event_stream import DONE, EventStream, event, primed
from elman.serving.api.routing import Serving, router
from elman.serving.api.sampling_fields import SamplingFields, Tokens
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
from elman.serving.api.text_service import Origin, TextService
from elman.serving.errors import ApiError
from elman.serving.generation import Piece, Scored
from elman.serving.text_model import TextModel

api = router()
MAX_TOKENS = 16  # OpenAI's default


class CompletionRequest(SamplingFields):
    prompt: str | Tokens | list[str] | list[Tokens] = ""
    """Text or token ids, or a list of either."""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens to generate at most; default 16. 0 goes with echo."""
    n: Annotated[int, Field(ge=1)] | None = None
    """Texts for each prompt, which is read once."""
    best_of: Annotated[int, Field(ge=1)] | None = None
    """Must equal n."""
    logprobs: Annotated[int, Field(ge=0)] | None = None
    """List log-probabilities, and at each position those of so many of the likeliest tokens."""
    echo: bool = False
    """Give the prompt back before the text, with its log-probabilities if asked for."""
    ignore_eos: bool = False
    """Go on after the end of a text with another one."""
    session: Annotated[str, Field(max_length=128)] | None = None
    """Continue the text of this session; the prompt is what follows it."""
    state: str | None = None
    """Continue the text of this state: base64 of what `return_state` or a session gave."""
    return_state: bool = False
    """Give the state after the text, as base64."""

    def prompts(self) -> list[str | list[int]]:
        given: Any = self.prompt
        return [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else given

    @property
    def carries_state(self) -> bool:
        return bool(self.session or self.state or self.return_state)


@api.post("/v1/completions")
async def create_completion(body: CompletionRequest, server: Serving) -> Response:
    """Continues prompts, or scores given text (`echo` with `logprobs`)."""
    service = TextService(server)
    _check(body, service)
    if body.stream:
        return EventStream(await primed(_events(body, service)))
    return JSONResponse(await server.while_connected(_whole(body, service)))


def _check(body: CompletionRequest, service: TextService) -> None:
    config = service.config
    service.check_fields(body)
    prompts, count = body.prompts(), body.n or 1
    check_count(len(prompts), config.max_inputs, "prompt")
    check_count(count, config.max_choices, "n")
    check_count(body.max_tokens or 0, config.max_tokens, "max_tokens")
    check_count(body.logprobs or 0, config.max_logprobs, "logprobs")
    if not prompts:
        raise ApiError(400, "prompt is an empty list; give a text, or leave it out", "prompt")
    if body.best_of not in (None, count):
        raise ApiError(400, "best_of other than n is not supported; sample n texts and choose", "best_of")
    if body.max_tokens == 0 and not (body.echo or body.return_state or body.session):
        raise ApiError(400, "max_tokens 0 generates nothing; it goes with echo or a session", "max_tokens")
    if body.session and body.state:
        raise ApiError(400, "session and state both say what to continue; leave one out", "state")
    if body.carries_state and (len(prompts) > 1 or count > 1 or body.echo):
        raise ApiError(400, "a session or state goes with one prompt, n 1 and no echo", "session")


def _texts(body: CompletionRequest, model: TextModel, service: TextService, origin: Origin) -> list[Text]:
    settings = body.settings(stop_at_end=not body.ignore_eos)
    service.check_bias(body, model)
    limit = MAX_TOKENS if body.max_tokens is None else body.max_tokens
    prompts = body.prompts()
    for prompt in prompts:
        check_prompt(prompt, model, service.config)
    return [
        text
        for prompt in prompts
        for text in make_texts(
            model,
            model.prompt(prompt, origin.snapshot),
            settings,
            limit,
            body.n or 1,
            top=body.logprobs or 0,
            scored=body.echo and body.logprobs is not None,
            keep=body.carries_state,
            owner=origin.owner,
        )
    ]


async def _whole(body: CompletionRequest, service: TextService) -> dict[str, Any]:
    async with service.open(body.model) as model, service.origin(model, body) as origin:
        texts = _texts(body, model, service, origin)
        await service.complete(model, texts)
        choices = [_choice(body, model, index, text) for index, text in enumerate(texts)]
        answer = _head(model) | {"choices": choices, "usage": usage(texts)}
        return answer | await origin.save(texts[0].snapshot)


async def _events(body: CompletionRequest, service: TextService) -> AsyncGenerator[bytes]:
    options = body.stream_options
    async with service.open(body.model) as model, service.origin(model, body) as origin:
        texts = _texts(body, model, service, origin)
        head, numbers = _head(model), {id(text): number for number, text in enumerate(texts)}
        echoed: set[int] = set()
        told = {id(text): 0 for text in texts}  # tokens whose log-probabilities have been sent
        events: list[bytes] = []
        async for batch in service.outputs(model, texts):
            events = []
            for text, outputs in joined(batch):
                new = "".join([text.add(output) for output in outputs])
                if isinstance(outputs[0], Scored):
                    continue
                number = numbers[id(text)]
                prompt = model.text_of(text.prompt) if body.echo and number not in echoed else ""
                echoed.add(number)
                listed = None if body.logprobs is None else _logprobs(body, model, text, told[id(text)])
                told[id(text)] = len(text.scored) + len(text.pieces)
                choice = {
                    "index": number,
                    "text": prompt + new,
                    "logprobs": listed,
                    "finish_reason": text.finish_reason,
                }
                chunk: dict[str, Any] = head | {"choices": [choice]}
                if options and options.continuous_usage_stats:
                    chunk["usage"] = usage(texts)
                events.append(event(chunk))
            if not all_finished(texts):
                yield b"".join(events)
        extra = await origin.save(texts[0].snapshot)
        if extra or (options and options.include_usage):
            events.append(event(head | {"choices": [], "usage": usage(texts)} | extra))
        yield b"".join([*events, DONE])


def _head(model: TextModel) -> dict[str, Any]:
    return {
        "id": f"cmpl-{random_id()}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
    }


def _choice(body: CompletionRequest, model: TextModel, index: int, text: Text) -> dict[str, Any]:
    return {
        "index": index,
        "text": (model.text_of(text.prompt) if body.echo else "") + text.text,
        "logprobs": None if body.logprobs is None else _logprobs(body, model, text),
        "finish_reason": text.finish_reason,
    }


def _logprobs(body: CompletionRequest, model: TextModel, text: Text, start: int = 0) -> dict[str, Any]:
    """Tokens with their log-probabilities; with echo those of the prompt come first, the first of them without one."""
    prompt = text.prompt.tokens if body.echo else []
    listed: list[Piece | Scored | None] = [*_scored(text), *text.pieces] if body.echo else [*text.pieces]
    tokens = [*prompt, *(piece.token for piece in text.pieces)]
    chosen = range(start, len(tokens))
    spelled = [model.spelled(token) for token in tokens[start:]]
    offsets = model.offsets(tokens)[start:]
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    for place, name in zip(chosen, spelled, strict=True):
        found = listed[place]
        values.append(None if found is None else found.log_prob)
        tops.append(None if found is None or not body.logprobs else model.spelled_top(found.top, name, found.log_prob))
    top = tops if body.logprobs else None
    return {"tokens": spelled, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}


def _scored(text: Text) -> list[Scored | None]:
    """Of each token of the prompt; the first has nothing before it."""
    implied = len(text.prompt.known) - len(text.prompt.tokens)
    return [None, *islice(text.scored, implied, None)][: len(text.prompt.tokens)]
