"""Wrong requests get an error of one shape that names the field and what would work; limits hold at limit + 1."""

import json

import pytest
from served import BEARER, error_of

JSON = {**BEARER, "Content-Type": "application/json"}
WRONG = [
    ({}, "input", "input: is required"),
    ({"input": 3}, "input", "valid string, or should be a valid dictionary, or should be a valid list, but got 3"),
    ({"input": []}, "input", "at least 1 item"),
    ({"input": None}, "input", "but got None"),
    ({"input": [["a"]]}, "input", "valid string"),
    ({"input": "a", "model": 3}, "model", "model: should be a valid string, but got 3"),
    ({"input": "a", "model": "classifi"}, "model", "did you mean 'classify'?); known: classify"),
    ({"input": "a", "temperature": 3}, "temperature", "unknown field 'temperature'; leave it out"),
    ({"input": "a", "probabilities": "yes"}, "probabilities", "should be a valid boolean, but got 'yes'"),
    ({"input": "a", "beam_size": 2}, "beam_size", "only translations are searched for"),
    ({"input": "a", "beam_size": -1}, "beam_size", "greater than or equal to 1, but got -1"),
    ({"input": {"words": "a"}}, "input", "input.0: unknown field 'words'; known: text"),
    ([], None, "the body"),
    ("text", None, "the body"),
]


@pytest.mark.slow
def test_an_error_names_the_field_and_what_was_given(client):
    ask = client("classify")
    for body, param, message in WRONG:
        found = ask.post("/classify", body)
        assert found.status_code == (404 if "known: classify" in message else 400), body
        error = error_of(found)
        assert error["param"] == param, body
        assert message in error["message"]


@pytest.mark.slow
def test_what_is_no_json_is_no_crash(client):
    """Such as NaN, deep nesting, long numbers and lone surrogates, which Python's own parser takes or fails on."""
    ask = client("classify")
    bodies = [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"input": ' * 10_000, b"1" * 6000, b'{"input": NaN}']
    bodies += [b'{"input": Infinity}', b'{"input": "\\ud800"}', b'{"input": "\x00"}', b'{"input": 1e999}', b"null"]
    bodies += [b'{"a":1,' * 500, b'"' + b"\\u0000" * 1000, b"{}" * 10]
    for body in bodies:
        found = ask.ask("POST", "/classify", content=body, headers=JSON)
        assert found.status_code == 400, body[:20]
        error_of(found)
    escaped = ask.ask("POST", "/classify", content=b'{"input": "\\u0000 \\u202e x"}', headers=JSON)
    assert escaped.status_code == 200


@pytest.mark.slow
def test_limits_hold_and_the_largest_allowed_passes(client):
    """Before any model is loaded: the size of a text is looked at before its tokens."""
    ask = client("classify", "translate", max_inputs=3, prompt_bytes=20, max_choices=4)
    tries = [
        ("/classify", {"model": "classify", "input": ["x"] * 4}, "input"),
        ("/classify", {"model": "classify", "input": "x" * 21}, "input"),
        ("/classify", {"model": "classify", "input": "é" * 11}, "input"),
        ("/classify", {"model": "classify", "input": ["x", {"text": "x" * 17}]}, "input"),
        ("/translate", {"model": "translate", "input": "x", "beam_size": 5}, "beam_size"),
        ("/tokenize", {"model": "classify", "prompt": "x" * 21}, "prompt"),
    ]
    for path, body, param in tries:
        found = ask.post(path, body)
        assert (found.status_code, error_of(found)["param"]) == (400, param), body
    assert all(entry.served is None for entry in ask.pool.entries)
    assert ask.post("/classify", {"model": "classify", "input": ["x"] * 3}).status_code == 200
    assert ask.post("/classify", {"model": "classify", "input": "é" * 10}).status_code == 200
    assert ask.post("/translate", {"model": "translate", "input": "ab", "beam_size": 4}).status_code == 200


@pytest.mark.slow
def test_errors_are_small_and_show_no_control_characters(client):
    """Whatever is quoted in them. Catches a message as long as the request."""
    ask = client("classify")
    hostile = "\x1b[31m\r\nSet-Cookie: a=b\u202e<script>" * 3000
    for body in ({"input": "a", "model": hostile}, {"input": "a", hostile[:5000]: 1}, {"input": [hostile, 3]}):
        found = ask.post("/classify", body)
        error = error_of(found)
        assert error["message"].isprintable()
        assert (error["param"] or "").isprintable()
    for path in ("/" + "%1b%0d%0a" * 100, "/v1/models/" + "%f0%9f%98%80" * 500):
        found = ask.get(path)
        assert found.status_code == 404
        assert error_of(found)["message"].isprintable()


@pytest.mark.slow
def test_routes_that_are_not_there_say_so(client):
    ask = client("classify")
    assert error_of(ask.get("/clasify"))["message"].startswith("there is no '/clasify'")
    wrong = ask.get("/classify")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    error_of(wrong)


@pytest.mark.slow
def test_a_request_that_takes_too_long_ends(client, monkeypatch):
    from served import Gate

    ask = client("classify", request_seconds=0.2)
    ask.run(ask.pool.preload())
    gate = Gate().hold(monkeypatch, ask.pool.entry("classify").served.trained)
    found = ask.post("/classify", {"input": "x"})
    gate.opened.set()
    assert (found.status_code, error_of(found)["code"]) == (504, "timeout")
    assert ask.pool.entry("classify").served.users == 0


@pytest.mark.slow
def test_a_stream_that_fails_ends_with_an_error_event(client):
    """Whether it crashes, takes too long, or is stopped; a client can tell it from a complete one."""
    import asyncio

    from starlette.responses import StreamingResponse

    from elman.serving.errors import ApiError
    from elman.serving.predictor import ending

    ask = client("classify", request_seconds=0.2)
    problems = {"late": lambda: asyncio.sleep(60), "crash": None, "wrong": ApiError(400, "no"), "stop": ending()}

    def route(name):
        async def events():
            yield "data: 1\n\n"
            if name == "crash":
                raise ZeroDivisionError("a secret text")
            if name == "wrong":
                raise problems[name]
            if name == "stop":
                for exchange in [*ask.app.state.running]:
                    exchange.stop(problems[name])
            await asyncio.sleep(60)

        async def answer():
            return StreamingResponse(events(), media_type="text/event-stream")

        ask.app.add_api_route(f"/try/{name}", answer)

    expected = {"late": "timeout", "crash": "internal_error", "wrong": None, "stop": "shutting_down"}
    for name, code in expected.items():
        route(name)
        found = ask.get(f"/try/{name}")
        first, second, rest = found.text.split("\n\n")
        assert (first, rest) == ("data: 1", "")
        assert json.loads(second.removeprefix("data: "))["error"]["code"] == code
        assert "secret" not in found.text
    assert not ask.app.state.running
