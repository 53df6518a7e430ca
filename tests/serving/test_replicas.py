"""A server with replicas on a Ray cluster, and the sessions that these share."""

import asyncio
import re
import sys
from importlib.util import find_spec

import httpx
import pytest
from processes import wait_for

from elman.comparison.user_modules import read_already, read_modules
from elman.errors import ConfigError
from elman.serving.metrics import Metrics
from elman.serving.ray_serve import check_cluster
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

    found = disturbed(runs["language-model"], requests=24, streams=4, check=all_checks_hold)
    assert found["replicas before"] == 2
    assert (found["lost"], found["texts that differ"]) == (0, 0)
    assert found["session goes on with the same text"]
    assert found["state goes on with the same text"]
    assert found["exit code"] == 0


def all_checks_hold(address, token):
    """Behind Ray's proxy as without it; a client that leaves stops its work."""
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=bearer, timeout=120) as http:

        def figures(name):
            """By replica, one of which answers."""
            found = re.findall(
                rf"^elman_{name}{{.*replica=\"(.+?)\".*}} (\S+)$", http.get("/metrics").text, re.MULTILINE
            )
            return {replica: float(value) for replica, value in found}

        assert http.get("/health").json() == {"status": "ok"}
        assert http.get("/v1/models", headers={"Authorization": f"Bearer {token}x"}).status_code == 401
        assert http.get("/v1/models", headers={"Host": "evil.example"}).status_code == 421
        assert http.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403
        assert http.post("/v1/completions", data={"prompt": "the"}).status_code == 415
        assert http.post("/v1/completions", json={"prompt": "a" * 2_000_000}).status_code == 413
        assert http.get("/health", headers={"X-Request-ID": "one"}).headers.get_list("x-request-id") == ["one"]
        body = {"prompt": "the", "max_tokens": 4096, "n": 16, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as answer:
            assert next(answer.iter_lines()).startswith("data: {")
        running, written = {}, {}

        def idle():
            running.update(figures("num_requests_running"))
            written.update(figures("generation_tokens_total"))
            return len(running) == 2 and not any(running.values())

        wait_for(idle)
        assert sum(written.values()) < 16 * 4096


def test_replicas_need_a_cluster():
    with pytest.raises(ConfigError, match="give its address with ray"):
        ServeConfig.make({"replicas": 2})
    with pytest.raises(ConfigError, match="max_replicas is 1, below replicas, which is 2"):
        ServeConfig.make({"ray": "local", "replicas": 2, "max_replicas": 1})


class Cluster:
    """As Ray and its Serve are seen by `check_cluster`: the applications that run, None where Serve does not."""

    def __init__(self, applications=None):
        self.applications, self.called = applications, []

    def cluster_resources(self):
        return {"CPU": 4.0}

    def get_actor(self, name, namespace):
        if self.applications is None:
            raise ValueError
        return object()

    def status(self):
        return self

    def shutdown(self):
        self.called.append("shutdown")

    def start(self, http_options, **more):
        self.called.append((http_options["host"], http_options["port"]))


def test_what_a_cluster_serves_already_is_not_replaced():
    settings = ServeConfig.make({"ray": "auto", "port": 8123, "replicas": 9})  # nodes may be added
    for cluster, called in ((Cluster(), []), (Cluster({}), ["shutdown"])):
        check_cluster(cluster, cluster, settings)
        assert cluster.called == [*called, ("127.0.0.1", 8123)]
    busy = Cluster({"theirs": None})
    with pytest.raises(ConfigError, match="serves theirs already"):
        check_cluster(busy, busy, settings)
    assert busy.called == []
    with pytest.raises(ConfigError, match="9 replicas need 9 cores, but there are 4"):
        check_cluster(Cluster(), Cluster(), settings.model_copy(update={"ray": "local"}))


def test_files_of_users_are_known_to_those_that_are_started(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    read_modules([tmp_path / "mine.py"])
    assert tmp_path.resolve() / "mine.py" in read_already()


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


def test_figures_have_the_name_of_their_replica():
    metrics = Metrics(lambda: [("m", 1, 2)])
    metrics.answered("/health", "GET", 200)
    assert 'elman_num_requests_running{model_name="m"} 1.0' in metrics.text().decode()
    metrics.replica = "one"
    for _ in range(2):  # the label is set once
        text = metrics.text().decode()
        assert 'elman_num_requests_running{model_name="m",replica="one"} 1.0' in text
        assert 'elman_http_requests_total{method="GET",replica="one",route="/health",status="200"} 1.0' in text
