"""A server with replicas on a Ray cluster, and the sessions that these share."""

import asyncio
import sys
from importlib.util import find_spec

import pytest
from processes import run_elman

from elman.errors import ConfigError
from elman.serving.sessions import NoSession, SessionBusy
from elman.serving.settings import ServeConfig
from elman.serving.shared_sessions import SessionKeeper, SharedSessions

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'elman[ray]'")


@pytest.mark.slow
@needs_ray
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_killed_replica_loses_no_request_and_no_session(runs):
    """Under load; catches sessions in the memory of a replica, and a key for each."""
    from benchmarks.serving.replicas import disturbed

    found = disturbed(runs["language-model"], requests=24, streams=4)
    assert found["replicas before"] == 2
    assert (found["lost"], found["texts that differ"]) == (0, 0)
    assert found["session goes on with the same text"]
    assert found["state goes on with the same text"]
    assert found["exit code"] == 0


@pytest.mark.slow
@needs_ray
def test_what_a_cluster_cannot_serve_is_said_at_once(runs):
    ended = run_elman("serve", str(runs["classify"]), "--ray", "local", "--replicas", "1000", "--port", "0")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("elman: 1000 replicas need 1000 cores, but there are ")


def test_replicas_need_a_cluster():
    with pytest.raises(ConfigError, match="give its address with ray"):
        ServeConfig.make({"replicas": 2})
    with pytest.raises(ConfigError, match="max_replicas is 1, below replicas, which is 2"):
        ServeConfig.make({"ray": "local", "replicas": 2, "max_replicas": 1})


# The keeper of sessions, without a cluster


class Actor:
    """Calls as Ray makes them: `ask.remote(...)` begins at once, and can be awaited."""

    def __init__(self, keeper):
        self.keeper, self.ask = keeper, self

    def remote(self, *arguments):
        return asyncio.ensure_future(self.keeper.ask(*arguments))


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Runs a test with two replicas, and the names of those that live."""
    alive = {"one", "two"}
    ray = type(sys)("ray.exceptions")
    ray.RayError = type("RayError", (Exception,), {})
    monkeypatch.setitem(sys.modules, "ray.exceptions", ray)

    def run(test):
        async def started():
            keeper = SessionKeeper(ServeConfig(sessions=tmp_path / "sessions"), alive.__contains__)
            actor = Actor(keeper)
            try:
                await test(SharedSessions(actor, "one", True), SharedSessions(actor, "two", True), alive)
            finally:
                keeper.close()

        asyncio.run(started())

    return run


def test_all_replicas_have_the_same_sessions(shared):
    async def test(one, two, alive):
        made = await one.create("ann", "m", "d", 3, b"abc")
        assert await two.get("ann", made.id) == made
        with pytest.raises(NoSession):
            await two.get("bob", made.id)
        taken = await one.take("ann", made.id)
        with pytest.raises(SessionBusy):
            await two.take("ann", made.id)
        saved = await one.save(taken._replace(state=b"abcd"))
        assert (await two.take("ann", made.id)).state == saved.state == b"abcd"
        one.give_back(made.id)  # at the end of the request, when another has it
        await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            await one.take("ann", made.id)
        two.give_back(made.id)
        await one.take("ann", made.id)
        await two.delete("ann", made.id)
        with pytest.raises(NoSession):
            await one.get("ann", made.id)

    shared(test)


def test_the_sessions_of_a_lost_replica_are_free(shared):
    async def test(one, two, alive):
        made = await one.create("ann", "m", "d", 3, b"abc")
        await one.take("ann", made.id)
        alive.discard("one")
        assert (await two.take("ann", made.id)).state == b"abc"
        with pytest.raises(SessionBusy):
            await two.take("ann", made.id)

    shared(test)


def test_a_client_that_leaves_while_a_session_is_fetched_does_not_keep_it(shared):
    async def test(one, two, alive):
        made = await one.create("ann", "m", "d", 3, b"abc")
        taking = asyncio.ensure_future(one.take("ann", made.id))
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        for _ in range(100):  # until the keeper has answered, and heard of it
            try:
                await two.take("ann", made.id)
                break
            except SessionBusy:
                await asyncio.sleep(0.01)
        else:
            pytest.fail("it is still kept")

    shared(test)
