"""Routes for programs that count or make tokens themselves, such as lm-evaluation-harness; as vLLM has them."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from elman.pipeline.tasks.position_checks import learned_positions
from elman.serving.api.routing import Body, Serving, chosen, router
from elman.serving.errors import ApiError
from elman.serving.models import ServedModel
from elman.tokenizers import Tokenizer

api = router()


class TokenizeRequest(Body):
    model: str | None = None
    prompt: str
    add_special_tokens: bool = False
    """Of no effect: the server itself puts the start token before a prompt."""
    return_token_strs: bool = False


class DetokenizeRequest(Body):
    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(fail_fast=True)]


@api.post("/tokenize")
async def tokenize(body: TokenizeRequest, server: Serving) -> dict[str, Any]:
    size = len(body.prompt.encode())
    if size > server.settings.prompt_bytes:
        most = server.settings.prompt_bytes
        raise ApiError(400, f"prompt: {size} bytes, but at most {most} are read; cut it", param="prompt")
    async with server.pool.use(chosen(server, body.model).id) as served:
        tokenizer = tokenizer_of(served)
        ids = await asyncio.to_thread(encode, tokenizer, body.prompt)
        names = [tokenizer.token(id) for id in ids] if body.return_token_strs else None
        return {"count": len(ids), "max_model_len": longest(served), "tokens": ids, "token_strs": names}


@api.post("/detokenize")
async def detokenize(body: DetokenizeRequest, server: Serving) -> dict[str, Any]:
    async with server.pool.use(chosen(server, body.model).id) as served:
        tokenizer = tokenizer_of(served)
        wrong = next((id for id in body.tokens if id >= tokenizer.vocab_size), None)
        if wrong is not None:
            reason = f"tokens: {wrong} is no token; they are numbered from 0 to {tokenizer.vocab_size - 1}"
            raise ApiError(400, reason, param="tokens")
        return {"prompt": await asyncio.to_thread(tokenizer.decode, body.tokens)}


@api.get("/tokenizer_info")
async def tokenizer_info(server: Serving, model: str | None = None) -> dict[str, Any]:
    async with server.pool.use(chosen(server, model).id) as served:
        tokenizer = tokenizer_of(served)
        return {
            "tokenizer_class": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "bos_token": tokenizer.token(tokenizer.start_id),
            "eos_token": tokenizer.token(tokenizer.eos_id),
            "unk_token": None if tokenizer.unk_id is None else tokenizer.token(tokenizer.unk_id),
            "bos_token_id": tokenizer.start_id,
            "eos_token_id": tokenizer.eos_id,
            "model_max_length": longest(served),
        }


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text; of the name of the start or end token alone that token, which a program looks up so."""
    special = {tokenizer.token(id): id for id in (tokenizer.start_id, tokenizer.eos_id)}
    return [special[text]] if text in special else tokenizer.encode(text).tolist()


def tokenizer_of(served: ServedModel) -> Tokenizer:
    found = getattr(served.trained.task, "tokenizer", None)
    if not isinstance(found, Tokenizer):
        raise ApiError(400, f"model {served.id!r} has no single tokenizer of texts", param="model")
    return found


def longest(served: ServedModel) -> int | None:
    """Tokens that the model has learned positions for; None if any number works."""
    return learned_positions(served.trained.model)
