"""Models are loaded when asked for, unloaded within the memory budget, and reloaded without losing a request."""

import asyncio
import shutil

import pytest
from served import BEARER, Client, Gate, error_of

import elman
from benchmarks.attack.small_runs import RECIPES, train
from elman.errors import ConfigError, RunError
from elman.pipeline import iterate
from elman.serving.models import ModelPool, checkpoint_bytes, distinct_names
from elman.serving.settings import ServeConfig


def test_names_are_those_of_the_folders_as_long_as_they_differ(tmp_path):
    a, b = tmp_path / "a" / "run", tmp_path / "b" / "run"
    assert distinct_names([a]) == ["run"]
    assert distinct_names([a, b]) == ["a/run", "b/run"]
    assert distinct_names([a, tmp_path / "c" / "other"]) == ["run", "other"]
    assert distinct_names([tmp_path / "x" / "a" / "run", tmp_path / "y" / "a" / "run"]) == ["x/a/run", "y/a/run"]
    with pytest.raises(ConfigError, match="given twice"):
        distinct_names([a, a])


@pytest.mark.slow
def test_models_are_known_before_they_are_loaded(client):
    ask = client("classify", "tag")
    first, second = ask.get("/v1/models").json()["data"]
    assert (first["id"], first["object"], first["owned_by"]) == ("classify", "model", "elman")
    assert (first["task"], first["routes"], first["loaded"]) == ("classify", ["/classify"], False)
    assert ask.get("/health", headers={}).status_code == 503
    assert ask.post("/tag", {"model": "tag", "input": "the cat"}).status_code == 200
    assert [one["loaded"] for one in ask.get("/v1/models").json()["data"]] == [False, True]
    ask.run(ask.pool.preload())
    assert ask.get("/health", headers={}).json() == {"status": "ok"}
    assert ask.get(f"/v1/models/{second['id']}").json() == {**second, "loaded": True}
    unknown = ask.get("/v1/models/tog")
    assert unknown.status_code == 404
    assert error_of(unknown)["message"] == "no model 'tog' is served here (did you mean 'tag'?); known: classify, tag"


@pytest.mark.slow
def test_only_so_many_models_stay_loaded(client, monkeypatch):
    """The one used least recently makes room, but none that a request uses."""
    ask = client("classify", "regress", "tag")
    for entry in ask.pool.entries:
        entry.bytes = 100
    ask.pool.budget = 250

    def loaded():
        return {entry.id for entry in ask.pool.entries if entry.served}

    ask.run(ask.pool.preload())
    assert loaded() == {"classify", "regress"}
    for name, left in (
        ("tag", {"regress", "tag"}),
        ("regress", {"regress", "tag"}),
        ("classify", {"regress", "classify"}),
    ):
        assert ask.post(f"/{name}", {"model": name, "input": "the x"}).status_code == 200
        assert loaded() == left
    gate = Gate().hold(monkeypatch, ask.pool.entry("regress").served.trained)

    async def while_one_runs():
        running = asyncio.create_task(
            ask.http.post("/regress", json={"model": "regress", "input": "x"}, headers=BEARER)
        )
        await asyncio.to_thread(gate.entered.wait, 60)
        other = await ask.http.post("/tag", json={"model": "tag", "input": "x"}, headers=BEARER)
        both = loaded()
        ask.pool.budget = 150
        full = await ask.http.post("/classify", json={"model": "classify", "input": "x"}, headers=BEARER)
        gate.opened.set()
        return other, both, full, await running

    other, both, full, running = ask.run(while_one_runs())
    assert (other.status_code, both, running.status_code) == (200, {"regress", "tag"}, 200)
    assert (full.status_code, error_of(full)["code"]) == (503, "out_of_memory")
    assert full.headers["retry-after"] == "10"


@pytest.mark.slow
def test_requests_at_the_same_time_load_a_model_once(client, monkeypatch):
    ask, loads = client("classify"), []
    load = ask.pool._load
    monkeypatch.setattr(ask.pool, "_load", lambda entry: loads.append(entry.id) or load(entry))
    answers = ask.together("/classify", [{"input": "x"}] * 5)
    assert ([one.status_code for one in answers], loads) == ([200] * 5, ["classify"])


@pytest.mark.slow
def test_a_newer_checkpoint_is_served_without_losing_a_request(tmp_path, monkeypatch):
    run = train("classify", tmp_path)
    ask = Client([run])
    before = ask.post("/classify", {"input": "this is x"}).json()["data"]
    served = ask.pool.entry("classify").served
    assert ask.run(ask.pool.reload()) == []
    assert ask.pool.entry("classify").served is served
    for _ in iterate(run=run, resume=True, overrides={"training.max_steps": 30}):
        pass
    gate = Gate().hold(monkeypatch, served.trained)

    async def reload_while_one_runs():
        body = {"input": "this is x"}
        running = asyncio.create_task(ask.http.post("/classify", json=body, headers=BEARER))
        await asyncio.to_thread(gate.entered.wait, 60)
        waiting = asyncio.create_task(ask.http.post("/classify", json=body, headers=BEARER))
        while ask.pool.loads() != [("classify", 1, 1)]:
            await asyncio.sleep(0.001)
        changed = await ask.pool.reload()
        new = await ask.http.post("/classify", json={"input": "this is x"}, headers=BEARER)
        gate.opened.set()
        return changed, [(await one).json().get("data") for one in (running, waiting)], new.json()["data"]

    changed, old, new = ask.run(reload_while_one_runs())
    assert changed == ["classify"]
    assert old == [before] * 2
    assert new[0]["probs"] == pytest.approx(
        list(elman.load(run, "cpu").predict("this is x", probabilities=True)["probabilities"].values())
    )
    assert new != before
    assert served.users == 0
    assert served._workers == {}, "the old model is closed"
    ask.close()


@pytest.mark.slow
def test_a_model_in_memory_is_served_too(runs):
    ask = Client([elman.load(runs["classify"], "cpu"), runs["regress"]])
    assert ask.pool.ids == ["classify", "regress"]
    assert ask.post("/classify", {"model": "classify", "input": "x"}).status_code == 200
    ask.close()


@pytest.mark.slow
def test_what_cannot_be_served_is_said_at_the_start(tmp_path, runs):
    with pytest.raises(ConfigError, match="nothing to serve"):
        ModelPool([], ServeConfig())
    with pytest.raises(RunError, match="no such run folder"):
        ModelPool([tmp_path / "none"], ServeConfig())
    copy = tmp_path / "copy"
    shutil.copytree(runs["classify"], copy)
    shutil.rmtree(copy / "best")
    shutil.rmtree(copy / "last")
    with pytest.raises(RunError, match="has no checkpoint yet"):
        ModelPool([copy], ServeConfig())


@pytest.mark.slow
def test_a_model_damaged_later_is_an_error_without_its_path(tmp_path, runs, caplog):
    copy = tmp_path / "copy"
    shutil.copytree(runs["classify"], copy)
    ask = Client([copy])
    shutil.rmtree(copy / "best")
    shutil.rmtree(copy / "last")
    found = ask.post("/classify", {"input": "x"})
    assert found.status_code == 503
    assert str(tmp_path) not in error_of(found)["message"]
    assert checkpoint_bytes(runs["classify"]) > 1000
    ask.close()


def test_every_task_has_a_run():
    from elman.pipeline.tasks import TASKS

    assert set(TASKS) <= {*RECIPES, *(name for name in TASKS if name.startswith("test"))}
