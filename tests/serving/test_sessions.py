"""Sessions: kept in memory up to a budget, on the disk beyond it, and on the disk before they are acknowledged."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from processes import environment

from elman.serving import sessions as module
from elman.serving.errors import ApiError
from elman.serving.session_store import Session, SessionStore
from elman.serving.sessions import NoSession, SessionBusy, Sessions, TooManySessions


def run(work):
    return asyncio.run(work)


@pytest.fixture
def sessions(tmp_path):
    made = []

    def make(folder=None, memory=10**6, most=1000, seconds_to_live=60.0):
        made.append(Sessions(folder and tmp_path / folder, memory=memory, most=most, seconds_to_live=seconds_to_live))
        return made[-1]

    yield make
    for one in made:
        one.close()


def create(store, owner="me", state=b"x" * 100):
    return store.create(owner, "lm", "digest", 5, state)


@pytest.mark.parametrize("folder", [None, "kept"])
@pytest.mark.parametrize("memory", [0, 10**6])
def test_sessions_come_back_whether_in_memory_or_spilled(sessions, folder, memory):
    async def work():
        store = sessions(folder, memory=memory)
        made = [await create(store, state=bytes([n]) * 50) for n in range(20)]
        assert len(store) == 20
        for n, session in enumerate(made):
            assert (await store.get("me", session.id)).state == bytes([n]) * 50
        changed = await store.save(made[3]._replace(state=b"new", position=9))
        again = await store.get("me", made[3].id)
        assert (again.state, again.position) == (b"new", 9)
        assert changed.expires >= made[3].expires
        await store.delete("me", made[3].id)
        assert len(store) == 19
        with pytest.raises(NoSession):
            await store.get("me", made[3].id)

    run(work())


def test_memory_stays_within_its_budget(sessions):
    async def work():
        store = sessions(memory=50_000)
        for _ in range(500):
            await create(store, state=b"x" * 1000)
        assert store._bytes <= 50_000
        assert len(store) == 500

    run(work())


def test_sessions_of_others_are_as_if_they_were_not_there(sessions):
    async def work():
        store = sessions()
        mine = await create(store)
        errors = []
        for owner, id in (("you", mine.id), ("you", "nothing")):
            for method in (store.get, store.take, store.delete):
                with pytest.raises(NoSession) as error:
                    await method(owner, id)
                errors.append(str(error.value).replace(repr(id), "ID"))
        assert len(set(errors)) == 1
        assert (await store.get("me", mine.id)).state == mine.state

    run(work())


def test_a_session_is_continued_by_one_request_at_a_time(sessions):
    async def work():
        store = sessions()
        one = await create(store)
        await store.take("me", one.id)
        with pytest.raises(SessionBusy, match="fork"):
            await store.take("me", one.id)
        store.give_back(one.id)
        await store.take("me", one.id)

    run(work())


@pytest.mark.parametrize("memory", [0, 10**6])
def test_sessions_expire_and_make_room(sessions, monkeypatch, memory):
    async def work():
        store = sessions(memory=memory, most=3)
        old = [await create(store) for _ in range(3)]
        with pytest.raises(TooManySessions, match="3 sessions"):
            await create(store)
        now = module.time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + 61)
        with pytest.raises(NoSession):
            await store.get("me", old[0].id)
        await create(store)
        assert len(store) == 1

    run(work())


def test_an_updated_session_outlives_its_older_copy_on_the_disk(sessions, monkeypatch):
    async def work():
        store = sessions(memory=0)
        one = await create(store)
        store.memory = 10**6
        now = module.time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + 50)
        await store.save(await store.get("me", one.id))
        monkeypatch.setattr(module.time, "time", lambda: now + 100)
        await store.sweep()
        assert len(store) == 1
        assert await store.get("me", one.id)

    run(work())


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    """A process is killed while it creates sessions: all that it has reported are there."""
    program = f"""
import asyncio, sys
from pathlib import Path
from elman.serving.sessions import Sessions

async def work():
    store = Sessions(Path({str(tmp_path)!r}), memory=0, most=10**6, seconds_to_live=600)
    async def many(n):
        for k in range(10**6):
            made = await store.create("me", "lm", "digest", k, b"%d-%d" % (n, k))
            print(made.id, n, k, flush=True)
    await asyncio.gather(*map(many, range(8)))
asyncio.run(work())
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as child:
        lines = [child.stdout.readline() for _ in range(200)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.read().splitlines()
    told = [line.split() for line in lines if len(line.split()) == 3][:-1]  # the last line may be cut
    store = SessionStore(tmp_path / "sessions.sqlite")
    for id, n, k in told:
        found = store.get(id).result()
        assert isinstance(found, Session)
        assert found.state == f"{n}-{k}".encode()
    store.close()


def test_a_session_is_not_deleted_while_it_is_continued(sessions):
    """Or the request that continues it would store it again."""

    async def work():
        store = sessions()
        one = await create(store)
        await store.take("me", one.id)
        with pytest.raises(SessionBusy):
            await store.delete("me", one.id)
        store.give_back(one.id)
        results = await asyncio.gather(*(store.delete("me", one.id) for _ in range(3)), return_exceptions=True)
        assert results.count(None) == 1
        assert len(store) == 0

    run(work())


def test_a_deleted_session_is_not_read_again(sessions):
    """Catches a read that was under way when it was deleted, and that puts it back into memory."""

    async def work():
        for _ in range(20):
            store = sessions(memory=0)
            one = await create(store)
            await asyncio.gather(store.delete("me", one.id), *(store.get("me", one.id) for _ in range(3)))
            with pytest.raises(NoSession):
                await store.get("me", one.id)

    run(work())


def test_reading_keeps_to_the_budget_of_memory(sessions):
    async def work():
        store = sessions(memory=20_000)
        made = [await create(store, state=b"x" * 1000) for _ in range(200)]
        for one in made:
            await store.get("me", one.id)
            assert store._bytes <= 20_000

    run(work())


def test_what_has_expired_is_removed_now_and_then(sessions, monkeypatch):
    """Not only when there is no more room."""

    async def work():
        store = sessions(memory=0)
        for _ in range(5):
            await create(store)
        now = module.time.time()
        monkeypatch.setattr(module.time, "time", lambda: now + 61)
        await create(store)
        assert len(store) == 1
        assert store._store.count().result() == 1

    run(work())


def test_a_store_that_fails_says_so_and_goes_on(sessions, monkeypatch):
    """Whatever the error is: its thread must not end, for all would wait for ever."""

    async def work():
        store = sessions(memory=0)
        with pytest.raises(ApiError, match="log says why"):
            await store._wrapped(store._store._do(lambda db: db.execute("SELECT nothing FROM nowhere")))
        with pytest.raises(ZeroDivisionError):
            await store._wrapped(store._store._do(lambda db: 1 / 0))
        one = await create(store)
        assert (await store.get("me", one.id)).state == one.state

    run(work())
