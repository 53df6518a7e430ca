"""Sessions in one SQLite file: what is committed survives a kill, and a restart.

One thread writes; what arrives while it commits is committed together (group commit), so that many sessions cost few
syncs of the disk.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

TABLE = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, model TEXT NOT NULL, digest TEXT NOT NULL, position INTEGER NOT NULL,
    expires REAL NOT NULL, state BLOB NOT NULL
)
"""
COLUMNS = "id, owner, model, digest, position, expires, state"
PAGE = 8192  # bytes: several states of small models fit into one; a third less disk than with 4096
MOST = 1000  # operations in one transaction


Job = Callable[[sqlite3.Connection], Any]


class Session(NamedTuple):
    """A text that a client continues, as it is stored."""

    id: str
    owner: str
    model: str
    digest: str  # of model and tokenizer
    position: int  # tokens read
    expires: float  # seconds since 1970
    state: bytes  # a signed snapshot


class SessionStore:
    """Every method returns a future, done once the operation is on the disk."""

    def __init__(self, path: Path | None):
        """`path`: the file; without one a temporary file that ends with the process, and no syncs."""
        self._jobs: queue.SimpleQueue[tuple[Job | None, Future[Any]]] = queue.SimpleQueue()
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(path, ready), name="elman-sessions", daemon=True)
        self._thread.start()
        ready.result()

    def put(self, session: Session) -> Future[None]:
        return self._do(lambda db: _put(db, [session]))

    def put_many(self, sessions: Iterable[Session]) -> Future[None]:
        return self._do(lambda db: _put(db, sessions))

    def get(self, id: str) -> Future[Session | None]:
        def read(db: sqlite3.Connection) -> Session | None:
            row = db.execute(f"SELECT {COLUMNS} FROM sessions WHERE id = ?", (id,)).fetchone()
            return Session(*row) if row else None

        return self._do(read)

    def delete(self, id: str) -> Future[None]:
        return self._do(lambda db: db.execute("DELETE FROM sessions WHERE id = ?", (id,)) and None)

    def delete_expired(self, now: float) -> Future[int]:
        return self._do(lambda db: db.execute("DELETE FROM sessions WHERE expires < ?", (now,)).rowcount)

    def count(self) -> Future[int]:
        return self._do(lambda db: db.execute("SELECT count(*) FROM sessions").fetchone()[0])

    def close(self) -> None:
        self._jobs.put((None, Future()))
        self._thread.join()

    def _do(self, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def _run(self, path: Path | None, ready: Future[None]) -> None:
        try:
            db = _open(path)
        except sqlite3.Error as problem:
            ready.set_exception(problem)
            return
        ready.set_result(None)
        while True:
            jobs = [self._jobs.get()]
            while len(jobs) < MOST and not self._jobs.empty():
                jobs.append(self._jobs.get())
            ending = any(job is None for job, _ in jobs)
            self._commit(db, [(job, future) for job, future in jobs if job is not None])
            if ending:
                db.close()
                return

    def _commit(
        self, db: sqlite3.Connection, jobs: list[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]]
    ) -> None:
        """Runs jobs in one transaction, and tells of them once it is on the disk."""
        done: list[tuple[Future[Any], Any]] = []
        try:
            db.execute("BEGIN")
            done = [(future, job(db)) for job, future in jobs]
            db.execute("COMMIT")
        except Exception as problem:  # a full disk, a damaged file; the thread goes on in any case
            if db.in_transaction:
                db.execute("ROLLBACK")
            for _, future in jobs:
                future.set_exception(problem)
            return
        for future, result in done:
            future.set_result(result)


def _put(db: sqlite3.Connection, sessions: Iterable[Session]) -> None:
    db.executemany(f"INSERT OR REPLACE INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", sessions)


def _open(path: Path | None) -> sqlite3.Connection:
    db = sqlite3.connect("" if path is None else path, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA page_size = {PAGE}")
    db.execute("PRAGMA journal_mode = " + ("WAL" if path else "OFF"))
    db.execute("PRAGMA synchronous = " + ("FULL" if path else "OFF"))
    db.execute(TABLE)
    db.execute("CREATE INDEX IF NOT EXISTS by_expiry ON sessions (expires)")
    return db
