"""A language model as the server runs it: encodes prompts, submits texts to its scheduler, and reads what they give."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import torch

from elman.evaluation.inference_mode import inference_mode
from elman.generation.sampling import GenerationConfig
from elman.models import is_masked, masked_model_error
from elman.ops.state import map_state
from elman.pipeline.trained_model import TrainedModel
from elman.serving.generation import Failed, Finished, Generation, Output, Snapshot
from elman.serving.models import ServedModel
from elman.serving.row_engines import rows_for
from elman.serving.scheduler import Scheduler
from elman.serving.settings import ServeConfig
from elman.tokenizers.base import StreamDecoder


class Prompt(NamedTuple):
    """What a text begins with."""

    tokens: list[int]  # as the client counts them
    known: list[int]  # as the model reads them: with the start of the text, or what a session has pending
    start: Snapshot | None = None


class Inbox:
    """Outputs of the texts of one request, as they come."""

    def __init__(self) -> None:
        self.outputs: list[tuple[Generation, Output]] = []
        self.filled = asyncio.Event()

    async def take(self) -> list[tuple[Generation, Output]]:
        """All that are there, at least one."""
        await self.filled.wait()
        self.filled.clear()
        outputs, self.outputs = self.outputs, []
        return outputs


class TextModel:
    """Made in any thread; used in one event loop."""

    def __init__(self, name: str, trained: TrainedModel, config: ServeConfig):
        if is_masked(trained.model):
            raise masked_model_error()
        self.name, self.trained, self.tokenizer = name, trained, trained.tokenizer
        self._loop: asyncio.AbstractEventLoop | None = None
        self.digest = digest_of(trained)
        with inference_mode(trained.model):
            self.initial = map_state(torch.clone, trained.model.initial_state(1))
        rows = rows_for(trained.model, config)
        self.engine = rows.name
        self.scheduler = Scheduler(
            rows,
            self.initial,
            self.tokenizer.eos_id,
            self.tokenizer.start_id,
            self._deliver,
            max_rows=config.max_batch,
            max_queue=config.max_queue,
            cache_bytes=config.prefix_cache_bytes,
            interval=config.event_seconds,
        )
        self._inboxes: dict[Generation, Inbox] = {}

    @classmethod
    def of(cls, served: ServedModel) -> "TextModel":
        return cls(served.id, served.trained, served.settings)

    @property
    def running(self) -> int:
        return len(self.scheduler.running)

    @property
    def waiting(self) -> int:
        return self.scheduler.waiting

    def prompt(self, text: str | Sequence[int], session: Snapshot | None = None) -> Prompt:
        """A prompt of text or token ids; that of a session is what follows its text so far."""
        tokens = [int(id) for id in self.tokenizer.encode(text)] if isinstance(text, str) else [*text]
        if session is not None:
            known = [*session.pending, *tokens] or [self.tokenizer.start_id]  # nothing follows: another text
            return Prompt(tokens, known, session)
        started = (
            not isinstance(text, str) and tokens[:1] and tokens[0] in (self.tokenizer.start_id, self.tokenizer.eos_id)
        )
        return Prompt(tokens, tokens if started else [self.tokenizer.start_id, *tokens])

    def generations(
        self,
        prompt: Prompt,
        config: GenerationConfig,
        *,
        limit: int,
        count: int = 1,
        top: int = 0,
        scored: bool = False,
        keep: bool = False,
        owner: str = "",
    ) -> list[Generation]:
        """`count` texts after one prompt, which is read once."""
        seed = secrets.randbits(63) if config.seed is None else config.seed

        def make(stream: int, forks: Sequence[Generation] = ()) -> Generation:
            return Generation(
                prompt.known,
                config,
                self.tokenizer,
                limit=limit,
                start=prompt.start,
                seed=seed,
                stream=stream,
                top=top,
                scored=scored and not stream,
                keep=keep,
                forks=forks,
                owner=owner,
            )

        others = [make(stream) for stream in range(1, count)]
        return [make(0, others), *others]

    async def run(self, generations: Sequence[Generation]) -> AsyncGenerator[list[tuple[Generation, Output]]]:
        """Submits texts, and yields what they give as it comes; cancels them if it is not read to its end."""
        self._loop = asyncio.get_running_loop()
        inbox = Inbox()
        open_texts = set(generations)
        self._inboxes.update(dict.fromkeys(generations, inbox))
        forks = {fork for generation in generations for fork in generation.forks}
        try:
            self.scheduler.submit(inbox, [generation for generation in generations if generation not in forks])
            while open_texts:
                outputs = await inbox.take()
                open_texts -= {generation for generation, output in outputs if isinstance(output, Finished | Failed)}
                yield outputs
        finally:
            for generation in generations:
                self._inboxes.pop(generation, None)
            if open_texts:
                self.scheduler.cancel([*generations])

    def spelled(self, token: int) -> str:
        """A token as text, for lists of tokens: part of a character as `bytes:\\xe2`."""
        if token == self.tokenizer.eos_id:
            return self.tokenizer.token(token)
        spelling = self.tokenizer.spellings[token]
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)

    def spelled_top(self, top: Sequence[tuple[int, float]], chosen: str, log_prob: float) -> dict[str, float]:
        """The likeliest tokens by their text, with the chosen one; of tokens with the same text the likelier counts."""
        found = {chosen: log_prob}
        for token, value in top:
            name = self.spelled(token)
            found[name] = max(value, found.get(name, value))
        return found

    def text_of(self, prompt: Prompt) -> str:
        return self.tokenizer.decode([token for token in prompt.tokens if token != self.tokenizer.eos_id])

    def offsets(self, tokens: Sequence[int], start: int = 0) -> list[int]:
        """Where in the text each token begins."""
        decoder, places = StreamDecoder(self.tokenizer), [start]
        for token in tokens:
            places.append(places[-1] + (0 if token == self.tokenizer.eos_id else len(decoder.push(token))))
        return [before for before, _ in pairwise(places)]

    def close(self) -> None:
        self.scheduler.close()

    def _deliver(self, outbox: list[tuple[Generation, Output]]) -> None:
        assert self._loop is not None, "texts are submitted by `run`"
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._dispatch, outbox)

    def _dispatch(self, outbox: list[tuple[Generation, Output]]) -> None:
        for generation, output in outbox:
            inbox = self._inboxes.get(generation)
            if inbox is not None:
                inbox.outputs.append((generation, output))
                inbox.filled.set()


def digest_of(trained: TrainedModel) -> str:
    """A hash of weights and tokenizer: states are of one model."""
    hashed = sha256(trained.task.fingerprint().encode())
    for name, part in sorted(trained.model.state_dict().items()):
        hashed.update(f"{name}:{part.dtype}:{tuple(part.shape)}".encode())
        hashed.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()
