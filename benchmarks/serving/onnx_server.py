"""The peer: an LSTM language model in onnxruntime behind FastAPI, with static batches of up to 64 requests.

A batch is formed of what waits, reads its prompts padded to the longest, and generates until all its texts have ended;
texts that have ended leave the batch. Sampling is vectorized NumPy.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from elman.tokenizers import load_tokenizer

BATCH, GATHER = 64, 0.005  # rows; seconds in which a batch is formed


class Model:
    def __init__(self, path: str, tokenizer: str, threads: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = load_tokenizer(tokenizer)
        self.layers, _, self.width = self.session.get_inputs()[2].shape
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()

    def run(self, tokens: Any, lengths: Any, state: Any) -> tuple[Any, Any]:
        """Logits after the last token of each row, and the state."""
        hidden, cell = state
        names = ("tokens", "lengths", "hidden", "cell")
        logits, hidden, cell = self.session.run(None, dict(zip(names, (tokens, lengths, hidden, cell), strict=True)))
        return logits, (hidden, cell)

    def sample(self, logits: Any, generators: list[Any]) -> Any:
        weights = np.exp(logits - logits.max(1, keepdims=True)).cumsum(1)
        draws = np.array([one.random() for one in generators]) * weights[:, -1]
        return (weights < draws[:, None]).sum(1)

    async def serve(self) -> None:
        while True:
            batch = [await self.waiting.get()]
            await asyncio.sleep(GATHER)
            while len(batch) < BATCH and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            prompts = [self.tokenizer.encode(one["prompt"]) for one, _ in batch]
            lengths = np.array([len(prompt) for prompt in prompts], np.int32)
            tokens = np.zeros((lengths.max(), len(batch)), np.int64)
            for row, prompt in enumerate(prompts):
                tokens[: len(prompt), row] = prompt
            zeros = np.zeros((self.layers, len(batch), self.width), np.float32)
            logits, state = await asyncio.to_thread(self.run, tokens, lengths, (zeros, zeros))
            generators = [np.random.default_rng(one["seed"]) for one, _ in batch]
            left = np.array([one["max_tokens"] for one, _ in batch])
            while batch:
                drawn = await asyncio.to_thread(self.sample, logits, generators)
                left -= 1
                for (_, inbox), token, rest in zip(batch, drawn.tolist(), left.tolist(), strict=True):
                    inbox.put_nowait((token, rest == 0))
                keep = left > 0
                batch = [one for one, stays in zip(batch, keep, strict=True) if stays]
                generators = [one for one, stays in zip(generators, keep, strict=True) if stays]
                drawn, left, state = drawn[keep], left[keep], tuple(part[:, keep] for part in state)
                if batch:
                    ones = np.ones(len(batch), np.int32)
                    logits, state = await asyncio.to_thread(self.run, drawn[None], ones, state)


def create(model: Model) -> FastAPI:
    app = FastAPI(on_startup=[lambda: asyncio.ensure_future(model.serve())])

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    @app.post("/v1/completions")
    async def complete(request: Request) -> StreamingResponse:
        body, inbox = await request.json(), asyncio.Queue[Any]()
        model.waiting.put_nowait((body, inbox))

        async def events() -> AsyncIterator[str]:
            ended = False
            while not ended:
                token, ended = await inbox.get()
                text = " " + model.tokenizer.token(token)
                while not inbox.empty():  # what has come in the meantime, together
                    token, ended = inbox.get_nowait()
                    text += " " + model.tokenizer.token(token)
                choice = {"index": 0, "text": text, "finish_reason": None}
                yield f"data: {json.dumps({'object': 'text_completion', 'choices': [choice]})}\n\n"
            yield f"data: {json.dumps({'choices': [{'index': 0, 'text': '', 'finish_reason': 'length'}]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return app


if __name__ == "__main__":
    path, tokenizer, threads, port = sys.argv[1:]
    uvicorn.run(create(Model(path, tokenizer, int(threads))), port=int(port), log_level="warning", access_log=False)
