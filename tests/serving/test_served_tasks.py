"""Every task that answers whole texts gives over HTTP what `trained.predict` gives in the process."""

import asyncio

import pytest
from served import BEARER, Gate, error_of

import elman
from elman.pipeline.tasks import TASKS

TEXTS = {
    "classify": ["this is x", "that was y", ""],
    "several": ["this is x", "nothing"],
    "regress": ["this is x", "that was y", ""],
    "tag": ["the dog", "a cat", ""],
    "translate": ["ab", "cab", ""],
    "masked": ["the cat <mask> on the mat", "a <mask> dog"],
}


def close(found, expected):
    """Equal, with numbers that rounding may change: a batch is computed in another order."""
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name, value in expected.items():
            close(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    else:
        assert found == expected


def expected_of(run, lines, **more):
    trained = elman.load(run, "cpu")
    task = trained.task
    more = {"probabilities": task.gives_probabilities, **more}
    return [{"index": n, **task.served(one)} for n, one in enumerate(trained.predict(lines, **more))]


def test_every_builtin_task_is_tried():
    tried = {"classify" if name == "several" else name for name in TEXTS}
    assert tried == {name for name in TASKS if TASKS[name].endpoint and not name.startswith("test")}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_answers_are_those_of_predict(client, runs, name):
    ask = client(name)
    endpoint = ask.pool.entry(name).task.endpoint
    found = ask.post(f"/{endpoint}", {"model": name, "input": TEXTS[name]}).json()
    assert (found["object"], found["model"]) == ("list", name)
    close(found["data"], expected_of(runs[name], TEXTS[name]))
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"] > 0
    single = ask.post(f"/{endpoint}", {"input": TEXTS[name][0]}).json()
    close(single["data"], found["data"][:1])


@pytest.mark.slow
def test_a_class_has_the_form_of_vllm(client):
    found = client("classify").post("/classify", {"input": "this is x"}).json()
    (one,) = found["data"]
    assert {"index", "label", "probs", "num_classes"} <= set(one)
    assert one["num_classes"] == len(one["probs"]) == len(found["classes"]) == 2
    assert found["classes"][one["probs"].index(max(one["probs"]))] == one["label"]


@pytest.mark.slow
def test_of_several_labels_the_likeliest_is_the_label(client):
    found = client("several").post("/classify", {"input": "this is x"}).json()
    (one,) = found["data"]
    assert one["label"] == found["classes"][one["probs"].index(max(one["probs"]))]
    assert set(one["labels"]) <= set(found["classes"])


@pytest.mark.slow
def test_words_candidates_and_probabilities_can_be_asked_for(client, runs):
    ask = client("tag", "translate", "regress")
    words = {"words": ["the", "big", "dog"]}
    found = ask.post("/tag", {"model": "tag", "input": [words], "probabilities": True}).json()
    close(found["data"], expected_of(runs["tag"], [words], probabilities=True))
    found = ask.post("/translate", {"model": "translate", "input": "ab", "probabilities": True, "beam_size": 3}).json()
    close(found["data"], expected_of(runs["translate"], ["ab"], probabilities=True, beam_size=3))
    assert len(found["data"][0]["candidates"]) == 3
    refused = ask.post("/regress", {"model": "regress", "input": "x", "probabilities": True})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "probabilities")


@pytest.mark.slow
def test_requests_that_wait_are_answered_together(client, monkeypatch):
    """Catches one call of `predict` per request, and answers handed to the wrong request."""
    ask = client("classify", max_batch=8)
    texts = ["this is x", "that was y", "x", "y y", "this", "that was"]
    alone = [ask.post("/classify", {"input": text}).json()["data"] for text in texts]
    gate = Gate().hold(monkeypatch, ask.pool.entry("classify").served.trained)

    async def first_then_others():
        first = asyncio.create_task(ask.http.post("/classify", json={"input": texts[0]}, headers=BEARER))
        await asyncio.to_thread(gate.entered.wait, 60)
        others = [
            asyncio.create_task(ask.http.post("/classify", json={"input": text}, headers=BEARER)) for text in texts[1:]
        ]
        while ask.pool.loads() != [("classify", 1, len(others))]:
            await asyncio.sleep(0.001)
        gate.opened.set()
        return [(await one).json()["data"] for one in (first, *others)]

    found = ask.run(first_then_others())
    assert [sorted(lines) for lines in gate.lines] == [texts[:1], sorted(texts[1:])]
    close(found, alone)


@pytest.mark.slow
def test_a_batch_is_not_larger_than_its_limit(client, monkeypatch):
    ask = client("classify", max_batch=3)
    ask.post("/classify", {"input": "x"})
    gate = Gate().hold(monkeypatch, ask.pool.entry("classify").served.trained)
    gate.opened.set()
    answers = ask.together("/classify", [{"input": ["x", "y"]}] * 4)
    assert [one.status_code for one in answers] == [200] * 4
    assert max(map(len, gate.lines)) <= 3


@pytest.mark.slow
def test_only_the_request_with_a_wrong_line_gets_the_error(client, monkeypatch):
    """In a batch of its own, whose line numbers are those of the request."""
    ask = client("tag")
    ask.post("/tag", {"input": "the dog"})
    gate = Gate().hold(monkeypatch, ask.pool.entry("tag").served.trained)

    async def good_and_bad():
        first = asyncio.create_task(ask.http.post("/tag", json={"input": "a cat"}, headers=BEARER))
        await asyncio.to_thread(gate.entered.wait, 60)
        bodies = [{"input": ["a dog"]}, {"input": ["the cat", {"words": ["a", ""]}]}]
        others = [asyncio.create_task(ask.http.post("/tag", json=body, headers=BEARER)) for body in bodies]
        while ask.pool.loads() != [("tag", 1, 2)]:
            await asyncio.sleep(0.001)
        gate.opened.set()
        return [await one for one in (first, *others)]

    first, good, bad = ask.run(good_and_bad())
    assert (first.status_code, good.status_code, bad.status_code) == (200, 200, 400)
    assert error_of(bad)["message"].startswith("line 2: needs a text 'words'")
    assert good.json()["data"][0]["words"] == ["a", "dog"]


@pytest.mark.slow
def test_a_full_queue_says_when_to_come_back(client, monkeypatch):
    ask = client("classify", max_queue=1)
    ask.post("/classify", {"input": "x"})
    gate = Gate().hold(monkeypatch, ask.pool.entry("classify").served.trained)

    async def three():
        waiting = [asyncio.create_task(ask.http.post("/classify", json={"input": "x"}, headers=BEARER))]
        await asyncio.to_thread(gate.entered.wait, 60)
        waiting.append(asyncio.create_task(ask.http.post("/classify", json={"input": "x"}, headers=BEARER)))
        while ask.pool.loads() != [("classify", 1, 1)]:
            await asyncio.sleep(0.001)
        refused = await ask.http.post("/classify", json={"input": "x"}, headers=BEARER)
        gate.opened.set()
        return refused, [(await one).status_code for one in waiting]

    refused, others = ask.run(three())
    assert (refused.status_code, refused.headers["retry-after"], others) == (429, "1", [200, 200])
    assert error_of(refused)["code"] == "queue_full"


@pytest.mark.slow
def test_a_client_that_has_gone_is_dropped_before_its_turn(client, monkeypatch):
    ask = client("classify")
    ask.post("/classify", {"input": "x"})
    gate = Gate().hold(monkeypatch, ask.pool.entry("classify").served.trained)

    async def leave():
        first = asyncio.create_task(ask.http.post("/classify", json={"input": "x"}, headers=BEARER))
        await asyncio.to_thread(gate.entered.wait, 60)
        left = asyncio.create_task(connection_that_closes(ask, {"input": "gone"}))
        while ask.pool.loads() != [("classify", 1, 1)]:
            await asyncio.sleep(0.001)
        ask.closed.set()
        assert await left == [499]
        gate.opened.set()
        return await first

    ask.closed = asyncio.Event()
    assert ask.run(leave()).status_code == 200
    ask.post("/classify", {"input": "y"})
    assert gate.lines == [["x"], ["y"]]
    assert not ask.app.state.running
    assert ask.pool.entry("classify").served.users == 0


async def connection_that_closes(ask, body):
    """A request whose connection closes once `ask.closed` is set; the status of the answer, which nobody reads."""
    import json

    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    statuses = []

    async def receive():
        if messages:
            return messages.pop()
        await ask.closed.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        statuses.extend([message["status"]] if "status" in message else [])

    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    headers.append((b"authorization", BEARER["Authorization"].encode()))
    scope = {"type": "http", "method": "POST", "path": "/classify", "raw_path": b"/classify", "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "server": ("127.0.0.1", 8000), "http_version": "1.1"}
    scope |= {"client": ("127.0.0.1", 1), "root_path": "", "asgi": {"version": "3.0"}}
    await ask.app(scope, receive, send)
    return statuses


@pytest.mark.slow
def test_a_model_answers_only_at_its_route(client):
    ask = client("classify", "language-model")
    wrong = ask.post("/tag", {"model": "classify", "input": "x"})
    assert (wrong.status_code, error_of(wrong)["message"]) == (
        400,
        "model 'classify' does not answer here, but at /classify",
    )
    assert "/v1/completions" in error_of(ask.post("/tag", {"model": "language-model", "input": "x"}))["message"]
    several = ask.post("/classify", {"input": "x"})
    assert (several.status_code, error_of(several)["param"]) == (400, "model")


@pytest.mark.slow
def test_a_crash_is_an_id_and_the_thread_goes_on(client, monkeypatch, caplog):
    ask = client("classify")
    ask.post("/classify", {"input": "x"})
    trained = ask.pool.entry("classify").served.trained
    with monkeypatch.context() as patch:
        patch.setattr(trained, "predict", lambda *_, **__: 1 / 0)
        failed = ask.post("/classify", {"input": "a secret text"}, headers={**BEARER, "X-Request-Id": "mine-1"})
    assert failed.status_code == 500
    assert error_of(failed)["message"] == "internal error; the server's log explains request mine-1"
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    assert ask.post("/classify", {"input": "x"}).status_code == 200
