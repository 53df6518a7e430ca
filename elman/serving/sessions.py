"""Sessions: texts that clients continue. The latest are in memory, all others in the store."""

import asyncio
import secrets
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from elman.errors import ConfigError, ElmanError
from elman.serving.session_store import Session, SessionStore
from elman.serving.settings import ServeConfig

OVERHEAD = 700  # bytes that an entry takes beside its state


class NoSession(ElmanError):
    """A session that is not there, has expired, or is another owner's."""


class SessionBusy(ElmanError):
    """A session that another request continues."""


class TooManySessions(ElmanError):
    pass


class Sessions:
    """All sessions of a server. With a folder each change is on the disk before it is acknowledged."""

    def __init__(self, folder: Path | None, *, memory: int, most: int, seconds_to_live: float):
        self.durable, self.memory, self.most, self.seconds_to_live = folder is not None, memory, most, seconds_to_live
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise ConfigError(f"{folder}: cannot be the folder of sessions: {error.strerror}") from None
        self._store = SessionStore(None if folder is None else folder / "sessions.sqlite")
        self._recent: OrderedDict[str, Session] = OrderedDict()
        self._spilled: set[str] = set()  # of those in memory, the ones whose current state the store has too
        self._bytes = 0
        self._busy: set[str] = set()
        self._count = self._store.count().result()

    @classmethod
    def of(cls, settings: ServeConfig) -> "Sessions":
        """With the limits of the server."""
        most, seconds = settings.session_count, settings.session_seconds
        return cls(settings.sessions, memory=settings.session_bytes, most=most, seconds_to_live=seconds)

    def __len__(self) -> int:
        return self._count

    async def create(self, owner: str, model: str, digest: str, position: int, state: bytes, id: str = "") -> Session:
        if self._count >= self.most:
            await self.sweep()
        if self._count >= self.most:
            raise TooManySessions(f"there are {self.most} sessions already; delete some, or wait until some expire")
        self._count += 1
        session = Session(id or secrets.token_urlsafe(18), owner, model, digest, position, 0.0, state)
        try:
            return await self.save(session)
        except BaseException:
            self._count -= 1
            raise

    async def get(self, owner: str, id: str) -> Session:
        session = self._recent.get(id)
        if session is None:
            session = await self._wrapped(self._store.get(id))
            if session is not None:
                self._remember(session, spilled=True)
        if session is None or session.owner != owner or session.expires < time.time():
            raise NoSession(f"there is no session {id[:64]!r}; it may have expired or been deleted")
        return session

    async def take(self, owner: str, id: str) -> Session:
        """A session to continue: no other request may until it is given back."""
        session = await self.get(owner, id)
        if id in self._busy:
            raise SessionBusy(f"session {id!r} is being continued by another request; fork it to continue it twice")
        self._busy.add(id)
        return session

    def give_back(self, id: str) -> None:
        self._busy.discard(id)

    async def save(self, session: Session) -> Session:
        """A session's new state; its time to live begins anew."""
        session = session._replace(expires=time.time() + self.seconds_to_live)
        if self.durable:
            await self._wrapped(self._store.put(session))
        elif session.id in self._spilled:
            self._store.delete(session.id)  # the older state
        self._remember(session, spilled=self.durable)
        await self._spill()
        return session

    async def delete(self, owner: str, id: str) -> None:
        await self.get(owner, id)
        self._forget(id)
        await self._wrapped(self._store.delete(id))
        self._count -= 1

    async def sweep(self) -> None:
        """Removes what has expired."""
        now = time.time()
        expired = [id for id, session in self._recent.items() if session.expires < now]
        lost = [id for id in expired if id not in self._spilled]
        for id in expired:
            self._forget(id)
        self._count -= len(lost) + await self._wrapped(self._store.delete_expired(now))

    def close(self) -> None:
        self._store.close()

    def _remember(self, session: Session, spilled: bool) -> None:
        self._forget(session.id)
        self._recent[session.id] = session
        self._bytes += len(session.state) + OVERHEAD
        if spilled:
            self._spilled.add(session.id)

    def _forget(self, id: str) -> None:
        session = self._recent.pop(id, None)
        self._spilled.discard(id)
        if session is not None:
            self._bytes -= len(session.state) + OVERHEAD

    async def _spill(self) -> None:
        """Moves the least recently used to the store, beyond the budget of memory."""
        moving: list[Session] = []
        freed = 0
        for session in self._recent.values():
            if self._bytes - freed <= self.memory:
                break
            freed += len(session.state) + OVERHEAD
            moving.append(session)
        new = [session for session in moving if session.id not in self._spilled]
        if new:
            await self._wrapped(self._store.put_many(new))
        for session in moving:
            if self._recent.get(session.id) is session:
                self._forget(session.id)

    @staticmethod
    async def _wrapped(future: Any) -> Any:
        return await asyncio.wrap_future(future)
