"""What routes for text work with: models, sessions, and the key that signs states."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from elman.serving.api.routing import Server, routes_of
from elman.serving.api.sampling_fields import SamplingFields
from elman.serving.api.text_call import Text, check_count, check_tokens, decode_state, encode_state, session_errors
from elman.serving.chat_format import ChatFormat
from elman.serving.errors import ApiError, too_busy
from elman.serving.generation import Output, Snapshot
from elman.serving.measured import Measured
from elman.serving.scheduler import QueueFull
from elman.serving.session_store import Session
from elman.serving.sessions import Sessions
from elman.serving.signed_state import StateSigner
from elman.serving.text_model import TextModel


class CarriesState(Protocol):
    """A request that may continue a text."""

    session: str | None
    state: str | None
    return_state: bool


class TextService:
    """What a request for text uses of the server."""

    def __init__(self, server: Server):
        self.pool, self.config, self.owner = server.pool, server.settings, server.owner or ""
        self.metrics = server.metrics
        state = server.request.app.state
        self.sessions: Sessions = state.sessions
        self.signer: StateSigner = state.signer
        self.chat_format: ChatFormat = state.chat_format

    @asynccontextmanager
    async def open(self, name: str | None) -> AsyncIterator[TextModel]:
        """The language model of that name; it stays loaded in the block."""
        async with self.pool.use(self._chosen(name)) as served:
            yield served.made(TextModel.of) or await asyncio.to_thread(served.worker, TextModel.of)

    def _chosen(self, name: str | None) -> str:
        """The model that a request names, or the only one that generates text."""
        known = [entry.id for entry in self.pool.entries if entry.task.generates_text]
        if name is None and len(known) == 1:
            return known[0]
        if name is None:
            raise ApiError(400, f"model: is required, since there are {len(known)} that generate text", "model")
        entry = self.pool.entry(name)
        if not entry.task.generates_text:
            routes = ", ".join(routes_of(entry))
            raise ApiError(400, f"model {name!r} generates no text, but answers at {routes}", "model")
        return name

    @asynccontextmanager
    async def origin(self, model: TextModel, body: CarriesState) -> AsyncIterator["Origin"]:
        """What a request continues. A session is its own until the end of the block."""
        owner, session, snapshot = self.owner, None, None
        with session_errors():
            if body.session is not None:
                session = await self.sessions.take(owner, body.session)
            try:
                if session is not None:
                    if session.model != model.name:
                        raise ApiError(409, f"the session is of model {session.model!r}", "session", "other_model")
                    snapshot = self.signer.unpack(session.state, model.digest, model.initial)
                elif body.state is not None:
                    snapshot = self.signer.unpack(decode_state(body.state), model.digest, model.initial)
                yield Origin(self, model, owner, snapshot, session, body.return_state)
            finally:
                if session is not None:
                    self.sessions.give_back(session.id)

    async def outputs(self, model: TextModel, texts: Sequence[Text]) -> AsyncGenerator[list[tuple[Text, Output]]]:
        """Runs texts, and yields what they give as it comes, which `Text.add` notes."""
        by_generation = {text.generation: text for text in texts}
        stream, measured = model.run([*by_generation]), Measured(self.metrics, model.name, texts)
        try:
            async for batch in stream:
                measured.note(batch)
                yield [(by_generation[generation], output) for generation, output in batch]
        except QueueFull as problem:
            raise too_busy(str(problem)) from None
        finally:
            await stream.aclose()

    async def complete(self, model: TextModel, texts: Sequence[Text]) -> None:
        """Runs texts to their end."""
        async for batch in self.outputs(model, texts):
            for text, output in batch:
                text.add(output)

    def check_fields(self, fields: SamplingFields) -> None:
        """Raises for what exceeds the server's limits, before any work on it."""
        stops = fields.stops()
        check_count(len(stops), self.config.stop_strings, "stop")
        if any(len(stop) > self.config.stop_length for stop in stops):
            raise ApiError(400, f"stop: a stop string is longer than {self.config.stop_length} characters", "stop")
        if fields.stream_options is not None and not fields.stream:
            raise ApiError(400, "stream_options go with stream: true", "stream_options")

    def check_bias(self, fields: SamplingFields, model: TextModel) -> None:
        check_tokens(map(int, fields.logit_bias or {}), model, "logit_bias")


class Origin:
    """The text that a request continues, if any, and where the new state goes."""

    def __init__(
        self,
        service: TextService,
        model: TextModel,
        owner: str,
        snapshot: Snapshot | None,
        session: Session | None,
        returned: bool,
    ):
        self.service, self.model, self.owner = service, model, owner
        self.snapshot, self.session, self.returned = snapshot, session, returned

    async def save(self, snapshot: Snapshot | None) -> dict[str, Any]:
        """Stores the new state where the request says; the fields of the answer that tell of it."""
        if snapshot is None:
            return {}
        data = self.service.signer.pack(snapshot, self.model.digest, self.service.config.session_seconds)
        answer: dict[str, Any] = {"state": encode_state(data)} if self.returned else {}
        if self.session is not None:
            session = self.session._replace(position=position_of(snapshot), state=data)
            with session_errors():
                answer["session"] = described(await self.service.sessions.save(session), self.service.sessions)
        return answer


def position_of(snapshot: Snapshot) -> int:
    """Tokens of the text, its start not counted."""
    return snapshot.position + len(snapshot.pending) - 1


def described(session: Session, sessions: Sessions) -> dict[str, Any]:
    """A session as clients see it. `stored`: it survives the end of the server."""
    return {
        "id": session.id,
        "object": "session",
        "model": session.model,
        "position": session.position,
        "bytes": len(session.state),
        "digest": session.digest,
        "expires_at": int(session.expires),
        "stored": sessions.durable,
    }
