"""Routes for text: what OpenAI's clients send and read, limits, sessions, and states as values."""

import base64
import json

import pytest
from served import BEARER, OTHER, error_of

import elman

MODEL = "language-model"
OTHERS = {"Authorization": f"Bearer {OTHER}"}
BYTES = {**BEARER, "Content-Type": "application/octet-stream"}


@pytest.fixture
def ask(client):
    return client(MODEL)


@pytest.fixture(scope="module")
def trained(runs):
    return elman.load(runs[MODEL])


def complete(ask, **fields):
    found = ask.post("/v1/completions", {"prompt": "the cat", "max_tokens": 12, "seed": 1, **fields})
    assert found.status_code == 200, found.text
    return found.json()


def events_of(found):
    """The events of a stream, without the last one, which says that it is complete."""
    assert found.headers["content-type"].startswith("text/event-stream")
    parts = found.text.removesuffix("\n\n").split("\n\n")
    assert parts.pop() == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_a_completion_is_the_text_that_generate_writes(ask, trained):
    settings = {"temperature": 0.7, "top_p": 0.9, "seed": 5, "max_tokens": 30}
    found = complete(ask, **settings)
    (choice,) = found["choices"]
    (expected,) = trained.generate_batch(["the cat"], **settings)
    assert choice["text"] == expected.text
    assert choice["finish_reason"] == {"end": "stop"}.get(expected.finished, expected.finished)
    assert found["object"] == "text_completion"
    counts = {"prompt_tokens": 7, "completion_tokens": len(expected.tokens), "total_tokens": 7 + len(expected.tokens)}
    assert found["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


@pytest.mark.parametrize("name", ["n-gram", "attention", "words"])
def test_all_families_are_served(client, runs, name):
    """Text, sessions and states; of an n-gram model the state is its last tokens."""
    ask, trained = client(name), elman.load(runs[name])
    (expected,) = trained.generate_batch(["the cat sat"], seed=4, max_tokens=12)
    whole = complete(ask, prompt="the cat sat", seed=4)["choices"][0]
    assert whole["text"] == expected.text
    session = ask.post("/v1/sessions", {"prompt": "the cat sat"}).json()["id"]
    data = ask.get(f"/v1/sessions/{session}/state").content
    restored = ask.ask("POST", "/v1/sessions", content=data, headers=BYTES).json()["id"]
    for id in (session, restored):
        assert complete(ask, prompt="", session=id, seed=4)["choices"][0]["text"] == whole["text"]


def test_a_stream_is_the_same_text_in_pieces(ask):
    fields = {"n": 2, "logprobs": 2, "max_tokens": 9, "ignore_eos": True}
    whole = complete(ask, **fields)
    events = events_of(ask.post("/v1/completions", {"prompt": "the cat", "seed": 1, "stream": True, **fields}))
    for index, choice in enumerate(whole["choices"]):
        parts = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
        for name in choice["logprobs"]:
            assert [value for part in parts for value in part["logprobs"][name]] == choice["logprobs"][name]


def test_a_stream_ends_with_the_usage_if_asked_for(ask):
    body = {"prompt": "the", "max_tokens": 3, "stream": True, "ignore_eos": True}
    *_, last = events_of(ask.post("/v1/completions", {**body, "stream_options": {"include_usage": True}}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert all("usage" not in event for event in events_of(ask.post("/v1/completions", body)))
    each = events_of(ask.post("/v1/completions", {**body, "stream_options": {"continuous_usage_stats": True}}))
    counts = [event["usage"]["completion_tokens"] for event in each]
    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_prompts_may_be_lists_and_tokens(ask, trained):
    tokens = [int(id) for id in trained.tokenizer.encode("the cat")]
    one = complete(ask)["choices"][0]["text"]
    assert complete(ask, prompt=tokens)["choices"][0]["text"] == one
    many = complete(ask, prompt=["the cat", "a", ""], n=2)
    assert [choice["index"] for choice in many["choices"]] == [*range(6)]
    assert many["choices"][0]["text"] == one
    assert many["usage"]["prompt_tokens"] == 8
    assert [choice["text"] for choice in complete(ask, prompt=[tokens, tokens])["choices"]] == [one, one]


def test_seeds_decide_and_texts_of_one_prompt_differ(ask):
    texts = [choice["text"] for choice in complete(ask, n=4)["choices"]]
    assert len(set(texts)) > 1
    assert texts == [choice["text"] for choice in complete(ask, n=4)["choices"]]
    assert complete(ask, seed=2)["choices"][0]["text"] != texts[0]
    assert complete(ask, seed=None)["choices"][0]["text"] != complete(ask, seed=None)["choices"][0]["text"]


def test_echo_with_logprobs_scores_the_prompt_as_lm_eval_reads_it(ask, trained):
    """Tokens, `echo`, `logprobs: 1` and one generated token: the values from the context's length to the last but one
    are those of the continuation."""
    start, text = trained.tokenizer.start_id, "the cat sat"
    tokens = [start, *(int(id) for id in trained.tokenizer.encode(text))]
    found = complete(ask, prompt=tokens, echo=True, logprobs=1, max_tokens=1, temperature=0)
    listed = found["choices"][0]["logprobs"]
    assert len(listed["tokens"]) == len(tokens) + 1
    assert listed["token_logprobs"][0] is None
    assert listed["top_logprobs"][0] is None
    end = trained.score(text).log_prob - sum(listed["token_logprobs"][1:-1])
    assert end < 0  # `score` counts the end of the text too
    longer = complete(ask, prompt=[*tokens, start], echo=True, logprobs=1, max_tokens=1, temperature=0)
    values = longer["choices"][0]["logprobs"]["token_logprobs"][1:-1]
    assert sum(values) == pytest.approx(trained.score(text).log_prob, abs=1e-5)
    greedy = listed["top_logprobs"][-1]
    assert max(greedy.values()) == listed["token_logprobs"][-1]  # equal floats


def test_echo_gives_the_prompt_back(ask):
    plain, echoed = complete(ask), complete(ask, echo=True, logprobs=0)
    assert echoed["choices"][0]["text"] == "the cat" + plain["choices"][0]["text"]
    listed = echoed["choices"][0]["logprobs"]
    assert "".join(listed["tokens"]) == echoed["choices"][0]["text"]
    assert listed["text_offset"] == [*range(len(listed["tokens"]))]
    assert listed["top_logprobs"] is None
    only = complete(ask, echo=True, logprobs=1, max_tokens=0)["choices"][0]
    assert only["text"] == "the cat"
    assert len(only["logprobs"]["tokens"]) == 7


def test_a_repeated_prompt_is_read_once_and_says_so(ask):
    prompt = "the cat sat on the mat and saw a big dog " * 4
    first, second = complete(ask, prompt=prompt), complete(ask, prompt=prompt)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1
    assert second["choices"] == first["choices"]


def test_requests_at_the_same_time_get_what_they_get_alone(ask):
    bodies = [{"prompt": "the cat sat"[:n], "max_tokens": 5 + n, "seed": n, "logprobs": 1} for n in range(10)]
    alone = [ask.post("/v1/completions", body).json()["choices"] for body in bodies]
    assert [found.json()["choices"] for found in ask.together("/v1/completions", bodies)] == alone


LIMITS = {
    "n": ({"n": 3}, {"max_choices": 2}),
    "max_tokens": ({"max_tokens": 9}, {"max_tokens": 8}),
    "logprobs": ({"logprobs": 3}, {"max_logprobs": 2}),
    "stop": ({"stop": ["a", "b", "c"]}, {"stop_strings": 2}),
    "stop ": ({"stop": "abc"}, {"stop_length": 2}),
    "prompt": ({"prompt": ["a", "b", "c"]}, {"max_inputs": 2}),
    "prompt ": ({"prompt": "é" * 6}, {"prompt_bytes": 11}),
    "prompt  ": ({"prompt": [1] * 12}, {"prompt_bytes": 11}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_one_more_than_a_limit_is_refused_by_name(client, name):
    fields, settings = LIMITS[name]
    ask = client(MODEL, **settings)
    body = {"prompt": "a", "max_tokens": 1, **fields}
    found = ask.post("/v1/completions", body)
    assert found.status_code == 400
    assert error_of(found)["param"] == name.strip()


WRONG = {
    "temperature": [-1, "warm", 1e999, None.__class__],
    "top_p": [0, 1.1],
    "top_k": [-2, 1.5],
    "seed": [2**64, "x"],
    "n": [0, "2"],
    "max_tokens": [-1, 1.5, 0],
    "logprobs": [-1, True],
    "logit_bias": [{"x": 1}, {"999": 1}, {"1": 101}, [1]],
    "stop": [3, [1]],
    "prompt": [3, [], [[]], [1, "a"], [10**6], ["\ud800"], None],
    "stream": ["yes"],
    "stream_options": [{"include_usage": True}, {"x": 1}],
    "presence_penalty": [3],
    "repetition_penalty": [0],
    "best_of": [2],
    "session": ["x" * 200],
    "state": ["not base64!", "AAAA"],
    "suffix": ["x"],
    "anything": [1],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_fields_are_refused_by_name(ask, name):
    for value in WRONG[name]:
        if isinstance(value, type):
            continue
        content = json.dumps({"max_tokens": 1, name: value})
        found = ask.ask(
            "POST", "/v1/completions", content=content, headers={**BEARER, "Content-Type": "application/json"}
        )
        assert found.status_code == 400, (value, found.text)
        error = error_of(found)
        if "no JSON" not in error["message"]:  # infinite numbers are none
            assert (error["param"] or "").split(".")[0] == name, (value, error)


def test_models_that_generate_no_text_say_where_they_answer(client):
    ask = client("classify", MODEL)
    assert complete(ask)["model"] == MODEL  # the only one that can
    found = ask.post("/v1/completions", {"model": "classify"})
    assert found.status_code == 400
    assert "/classify" in error_of(found)["message"]


def test_a_chat_is_answered(ask):
    body = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 8, "seed": 3, "logprobs": True}
    found = ask.post("/v1/chat/completions", {**body, "top_logprobs": 2, "n": 2}).json()
    first, second = found["choices"]
    assert first["message"]["role"] == "assistant"
    assert first["message"] != second["message"]
    entry = first["logprobs"]["content"][0]
    assert {*entry} == {"token", "logprob", "bytes", "top_logprobs"}
    assert len(entry["top_logprobs"]) == 2
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    again = ask.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": parts}]}).json()
    assert again["choices"][0]["message"] == first["message"]


def test_a_chat_streams_the_role_then_the_same_content(ask):
    body = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 30, "seed": 3}
    whole = ask.post("/v1/chat/completions", body).json()["choices"][0]
    streamed = ask.post("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    *events, last = events_of(streamed)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == whole["message"]["content"]
    assert events[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 30)


def test_a_chat_template_is_plain_substitution(client, tmp_path):
    path = tmp_path / "chat.yaml"
    path.write_text('system: "{content}|"\nuser: "<{content}>"\nassistant: "[{content}]"\nprompt: "["\nstop: ["]"]\n')
    written = "be kind|<hi {content}>[ho]<and>["
    ask = client(MODEL, chat_template=str(path))
    chat = [("system", "be kind"), ("user", "hi {content}"), ("assistant", "ho"), ("user", "and")]
    messages = [{"role": role, "content": content} for role, content in chat]
    found = ask.post("/v1/chat/completions", {"messages": messages, "max_tokens": 9, "seed": 1}).json()
    plain = complete(ask, prompt=written, max_tokens=9, stop=["]"])
    assert found["choices"][0]["message"]["content"] == plain["choices"][0]["text"].strip()


def test_responses_continue_each_other_and_may_have_two_children(ask):
    def respond(text, previous=None, **more):
        body = {"input": text, "max_output_tokens": 10, "seed": 2, "previous_response_id": previous, **more}
        return ask.post("/v1/responses", body)

    first = respond("the cat").json()
    assert first["object"] == "response"
    assert first["status"] == ("incomplete" if first["usage"]["output_tokens"] == 10 else "completed")
    answer = first["output"][0]["content"][0]["text"]
    chat = [("user", "the cat"), ("assistant", answer), ("user", "a dog")]
    messages = [{"role": role, "content": content} for role, content in chat]
    body = {"messages": messages, "max_tokens": 10, "seed": 2}
    expected = ask.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    for _ in range(2):  # two children
        child = respond("a dog", first["id"]).json()
        assert child["output"][0]["content"][0]["text"] == expected
        assert child["previous_response_id"] == first["id"]
    assert child["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert ask.get(f"/v1/responses/{first['id']}").json() == first
    unknown = respond("a dog", "resp_none")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "response_not_found")
    assert error_of(unknown)["param"] == "previous_response_id"
    session = ask.post("/v1/sessions", {"prompt": "the cat"}).json()["id"]
    for id in (session, f"resp_{session}"):  # which are no responses
        assert ask.ask("DELETE", f"/v1/responses/{id}").status_code == 404
    assert ask.get(f"/v1/sessions/{session}").status_code == 200
    forgotten = respond("the cat", store=False).json()["id"]
    assert ask.get(f"/v1/responses/{forgotten}").status_code == 404
    assert ask.ask("DELETE", f"/v1/responses/{first['id']}").json()["deleted"]
    assert respond("a dog", first["id"]).status_code == 404


def test_a_response_streams_typed_events(ask):
    body = {"input": [{"role": "user", "content": "the cat"}], "max_output_tokens": 10, "seed": 2}
    whole = ask.post("/v1/responses", body).json()
    lines = ask.post("/v1/responses", {**body, "stream": True}).text.strip().split("\n\n")
    events = [json.loads(line.partition("\ndata: ")[2]) for line in lines]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert [line.partition("\n")[0] for line in lines] == [f"event: {event['type']}" for event in events]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    final = events[-1]["response"]
    assert text == whole["output"][0]["content"][0]["text"] == final["output"][0]["content"][0]["text"]
    assert events[0]["response"]["id"] == final["id"]
    assert ask.get(f"/v1/responses/{final['id']}").json() == final


def test_a_session_goes_on_where_it_stopped(ask):
    whole = complete(ask, temperature=0, max_tokens=12, logprobs=1)["choices"][0]
    session = ask.post("/v1/sessions", {"prompt": "the cat"}).json()
    assert session["position"] == 7
    parts = [
        complete(ask, prompt="", session=session["id"], temperature=0, max_tokens=n, logprobs=1) for n in (3, 1, 8)
    ]
    assert "".join(part["choices"][0]["text"] for part in parts) == whole["text"]
    values = [part["choices"][0]["logprobs"]["token_logprobs"] for part in parts]
    assert [value for part in values for value in part] == whole["logprobs"]["token_logprobs"]
    assert parts[-1]["session"]["position"] == 19
    assert parts[-1]["usage"]["prompt_tokens"] == 0


def test_a_session_may_begin_empty_and_reads_what_follows(ask):
    whole = complete(ask, prompt="the cat sat on", temperature=0)["choices"][0]["text"]
    session = ask.post("/v1/sessions", {}).json()["id"]
    for text in ("the cat", " sat"):
        complete(ask, prompt=text, session=session, max_tokens=0)
    assert complete(ask, prompt=" on", session=session, temperature=0)["choices"][0]["text"] == whole


def test_a_fork_and_its_origin_go_different_ways(ask):
    origin = ask.post("/v1/sessions", {"prompt": "the"}).json()["id"]
    fork = ask.post(f"/v1/sessions/{origin}/fork", {}).json()["id"]
    ways = {
        id: complete(ask, prompt=text, session=id)["choices"][0]["text"] for id, text in ((origin, " a"), (fork, " c"))
    }
    for id, text in ((origin, "the a"), (fork, "the c")):
        assert ways[id] == complete(ask, prompt=text)["choices"][0]["text"]


def test_a_state_is_a_value(ask, client, tmp_path):
    """It is given away, restored, here or on a replica with the same key, and continued without a session."""
    session = ask.post("/v1/sessions", {"prompt": "the cat"}).json()
    data = ask.get(f"/v1/sessions/{session['id']}/state").content
    restored = ask.ask("POST", "/v1/sessions", content=data, headers=BYTES)
    assert restored.status_code == 201
    expected = complete(ask, session=session["id"], prompt="")["choices"]
    assert complete(ask, session=restored.json()["id"], prompt="")["choices"] == expected
    text = base64.b64encode(data).decode()
    found = complete(ask, state=text, prompt="", return_state=True)
    assert found["choices"] == expected
    again = complete(ask, state=found["state"], prompt="", temperature=0)["choices"]
    assert complete(ask, session=session["id"], prompt="", temperature=0)["choices"] == again
    key = tmp_path / "key"
    replicas = [client(MODEL, state_key=str(key)) for _ in range(2)]
    foreign = replicas[0].post("/v1/completions", {"prompt": "", "state": text})
    assert (foreign.status_code, error_of(foreign)["code"]) == (400, "invalid_state")
    given = complete(replicas[0], return_state=True)["state"]
    one, two = (complete(replica, prompt=" a", state=given)["choices"] for replica in replicas)
    assert one == two


def test_sessions_of_others_are_not_there(ask):
    id = ask.post("/v1/sessions", {"prompt": "the"}).json()["id"]
    response = ask.post("/v1/responses", {"input": "hi", "max_output_tokens": 1}).json()["id"]
    tries = [
        ("GET", f"/v1/sessions/{id}", None),
        ("GET", f"/v1/sessions/{id}/state", None),
        ("POST", f"/v1/sessions/{id}/fork", None),
        ("DELETE", f"/v1/sessions/{id}", None),
        ("POST", "/v1/completions", {"session": id}),
        ("GET", f"/v1/responses/{response}", None),
        ("DELETE", f"/v1/responses/{response}", None),
        ("POST", "/v1/responses", {"input": "hi", "previous_response_id": response}),
    ]
    for method, path, body in tries:
        found = ask.ask(method, path, headers=OTHERS, json=body)
        assert found.status_code == 404, (method, path)
        kind = (
            "response" if response in (path.rpartition("/")[2], (body or {}).get("previous_response_id")) else "session"
        )
        assert error_of(found)["code"] == f"{kind}_not_found"
    assert ask.get(f"/v1/sessions/{id}").status_code == 200
    assert ask.ask("DELETE", f"/v1/sessions/{id}").json()["deleted"]
    assert ask.get(f"/v1/sessions/{id}").status_code == 404


def test_sessions_survive_a_restart(client, tmp_path):
    folder = str(tmp_path / "sessions")
    first = client(MODEL, sessions=folder)
    session = first.post("/v1/sessions", {"prompt": "the cat"}).json()
    assert session["stored"]
    complete(first, session=session["id"], prompt=" sat")
    state = first.get(f"/v1/sessions/{session['id']}/state").content
    first.app.state.sessions.close()
    second = client(MODEL, sessions=folder)
    assert second.get(f"/v1/sessions/{session['id']}/state").content == state
    assert complete(second, session=session["id"], prompt="")["session"]["position"] > session["position"]


def test_metrics_count_texts(ask):
    complete(ask, n=2)
    found = ask.get("/metrics").text
    assert f'elman_generation_tokens_total{{model_name="{MODEL}"}} 24.0' in found
    assert f'elman_request_success_total{{finished_reason="length",model_name="{MODEL}"}} 2.0' in found
    assert f'elman_time_to_first_token_seconds_count{{model_name="{MODEL}"}} 2.0' in found
