"""Sessions of a server with replicas: one actor of Ray keeps them, and all replicas ask it.

replica ──take(id, replica)──▶ keeper: Sessions (memory, SQLite) + who continues which session
A session that a lost replica was continuing is free at once, with the state that was saved last.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from elman.errors import ElmanError
from elman.serving.errors import ApiError
from elman.serving.session_store import Session
from elman.serving.sessions import SessionBusy, Sessions
from elman.serving.settings import ServeConfig


class SessionKeeper:
    """The actor. Errors are answers, since Ray would wrap what is raised. `alive` says whether a replica is there."""

    def __init__(self, settings: ServeConfig, alive: Callable[[str], bool]):
        self.sessions, self.alive = Sessions.of(settings), alive
        self.takers: dict[str, str] = {}

    async def ask(self, method: str, *arguments: Any) -> Any:
        own: dict[str, Any] = {"take": self.take, "save": self.save, "give_back": self.give_back}
        try:
            return await (own.get(method) or getattr(self.sessions, method))(*arguments)
        except ElmanError as error:
            return error

    async def take(self, owner: str, id: str, replica: str) -> Session:
        try:
            session = await self.sessions.take(owner, id)
        except SessionBusy:
            if self.takers[id] == replica or self.alive(self.takers[id]):
                raise
            await self.give_back(id, self.takers[id])
            session = await self.sessions.take(owner, id)
        self.takers[id] = replica
        return session

    async def save(self, session: Session, replica: str) -> Session:
        """Its new state; whoever hears of it may continue it at once, at any replica."""
        saved = await self.sessions.save(session)
        await self.give_back(session.id, replica)
        return saved

    async def give_back(self, id: str, replica: str) -> None:
        if self.takers.get(id) == replica:
            del self.takers[id]
            self.sessions.give_back(id)

    def close(self) -> None:
        self.sessions.close()


class SharedSessions:
    """What a replica has in the place of `Sessions`."""

    def __init__(self, keeper: Any, replica: str, durable: bool):
        self.keeper, self.replica, self.durable = keeper, replica, durable
        self._taken: set[str] = set()

    async def create(self, owner: str, model: str, digest: str, position: int, state: bytes, id: str = "") -> Session:
        return await self._ask("create", owner, model, digest, position, state, id)

    async def get(self, owner: str, id: str) -> Session:
        return await self._ask("get", owner, id)

    async def take(self, owner: str, id: str) -> Session:
        taking = asyncio.ensure_future(self._take(owner, id))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(partial(self._drop, id))
            raise

    def _drop(self, id: str, taking: asyncio.Task[Session]) -> None:
        """The client has gone, but the keeper may have given it."""
        if not taking.cancelled() and taking.exception() is None:
            self.give_back(id)

    async def _take(self, owner: str, id: str) -> Session:
        session = await self._ask("take", owner, id, self.replica)
        self._taken.add(id)
        return session

    async def save(self, session: Session) -> Session:
        saved = await self._ask("save", session, self.replica)
        self._taken.discard(session.id)
        return saved

    def give_back(self, id: str) -> None:
        if id in self._taken:  # else the keeper knows since it was saved, and another request may have it
            self._taken.discard(id)
            self.keeper.ask.remote("give_back", id, self.replica)

    async def delete(self, owner: str, id: str) -> None:
        await self._ask("delete", owner, id)

    def close(self) -> None:
        """The keeper goes on for other replicas."""

    async def _ask(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayError

        try:
            answer = await self.keeper.ask.remote(method, *arguments)
        except RayError as error:
            raise keeper_lost() from error
        if isinstance(answer, ElmanError):
            raise answer
        return answer


def keeper_lost() -> ApiError:
    return ApiError(503, "the sessions are being restored; try again", code="unavailable", headers={"Retry-After": "1"})
