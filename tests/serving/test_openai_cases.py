"""What OpenAI's Python client expects of completions, case by case, as suites of other servers list them."""

import asyncio

import httpx
import openai
import pytest
from served import ADDRESS, SECRET

MODEL = "language-model"
PROMPT = "the cat sat"


@pytest.fixture(scope="module")
def server(runs):
    from served import Client

    found = Client([runs[MODEL]])
    found.openai = openai.AsyncOpenAI(
        base_url=f"{ADDRESS}/v1", api_key=SECRET, max_retries=0,
        http_client=httpx.AsyncClient(transport=httpx.ASGITransport(found.app)),
    )  # fmt: skip
    yield found
    found.run(found.openai.close())
    found.close()


@pytest.fixture
def create(server):
    def ask(**fields):
        body = {
            "model": MODEL,
            "prompt": PROMPT,
            "max_tokens": 5,
            "temperature": 0.0,
            "extra_body": {"ignore_eos": True},
        }
        return server.run(server.openai.completions.create(**{**body, **fields}))

    return ask


@pytest.fixture
def stream(server, create):
    def ask(**fields):
        async def read(chunks):
            return [chunk async for chunk in chunks]

        return server.run(read(create(stream=True, **fields)))

    return ask


def ids(server, text=PROMPT):
    return server.post("/tokenize", {"prompt": text}).json()["tokens"]


def test_one_completion(server, create):
    found = create()
    assert found.id
    (choice,) = found.choices
    assert len(choice.text) == 5
    assert choice.finish_reason == "length"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (11, 5, 16)
    assert create(prompt=ids(server)).choices == found.choices
    assert len(create(prompt=[0] * 5).choices[0].text) >= 1


def test_as_many_log_probabilities_as_asked_for(create):
    assert create().choices[0].logprobs is None
    none = create(logprobs=0).choices[0].logprobs
    assert none.tokens
    assert none.token_logprobs
    some = create(logprobs=5, temperature=1.0, seed=1).choices[0].logprobs
    assert all(5 <= len(top) <= 6 for top in some.top_logprobs)
    assert all(name in top for name, top in zip(some.tokens, some.top_logprobs, strict=True))


@pytest.mark.parametrize("streamed", [False, True])
def test_too_many_log_probabilities_are_refused_and_the_next_request_is_not(create, stream, streamed):
    with pytest.raises(openai.BadRequestError, match="logprobs is 21") as found:
        (stream if streamed else create)(logprobs=21)
    assert found.value.param == "logprobs"
    assert create().choices[0].text


def test_a_stream_is_the_text_and_ends_once(create, stream):
    whole = create(max_tokens=9)
    chunks = stream(max_tokens=9)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_several_texts_are_streamed_side_by_side(create, stream):
    fields = {"n": 3, "max_tokens": 9, "temperature": 1.0, "seed": 4}
    whole, texts, ends = create(**fields), ["", "", ""], []
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    for chunk in stream(**fields):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        ends += [choice.index] * (choice.finish_reason is not None)
    assert texts == [choice.text for choice in whole.choices]
    assert sorted(ends) == [0, 1, 2]
    assert whole.usage.prompt_tokens == 11
    assert whole.usage.completion_tokens == 27


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("continuous", [False, True])
def test_usage_of_a_stream(stream, usage, continuous):
    options = {"include_usage": usage, "continuous_usage_stats": continuous}
    chunks = stream(stream_options=options)
    if usage:
        last = chunks.pop()
        assert last.choices == []
        assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens == 16
    assert all((chunk.usage is not None) == continuous for chunk in chunks)
    if continuous:
        counts = [chunk.usage.completion_tokens for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-1] == 5


def test_stream_options_need_a_stream(create):
    for options in ({"include_usage": True}, {"include_usage": False}, {"continuous_usage_stats": True}):
        with pytest.raises(openai.BadRequestError, match="stream_options go with stream: true"):
            create(stream_options=options)


def test_several_prompts_in_one_request(server, create, stream):
    for prompts in ([PROMPT, "a big"], [ids(server), ids(server, "a big")]):
        found = create(prompt=prompts)
        assert [choice.index for choice in found.choices] == [0, 1]
        assert found.choices[0].text == create().choices[0].text
        texts = ["", ""]
        for chunk in stream(prompt=prompts):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        assert texts == [choice.text for choice in found.choices]


def test_a_bias_forces_and_forbids_tokens(server, create):
    (token, *_) = ids(server, "m")
    assert create(logit_bias={str(token): 100}).choices[0].text == "mmmmm"
    plain = create(max_tokens=10).choices[0].text
    forbidden = {str(one): -100 for text in set(plain) for one in ids(server, text)}
    assert not set(create(max_tokens=10, logit_bias=forbidden).choices[0].text) & set(plain)


@pytest.mark.parametrize("as_tokens", [False, True])
def test_echo_lists_the_prompt_first(server, create, stream, as_tokens):
    fields = {"prompt": ids(server) if as_tokens else PROMPT, "echo": True, "logprobs": 1}
    found = create(**fields).choices[0]
    listed = found.logprobs
    assert found.text.startswith(PROMPT)
    assert len(found.text) == len(PROMPT) + 5
    assert len(listed.tokens) == len(listed.token_logprobs) == len(listed.top_logprobs) == len(PROMPT) + 5
    assert (listed.token_logprobs[0], listed.top_logprobs[0]) == (None, None)
    assert all(1 <= len(top) <= 2 for top in listed.top_logprobs[1:])
    chunks = stream(**fields)
    assert "".join(chunk.choices[0].text for chunk in chunks) == found.text
    assert [name for chunk in chunks for name in chunk.choices[0].logprobs.tokens] == listed.tokens
    assert [place for chunk in chunks for place in chunk.choices[0].logprobs.text_offset] == listed.text_offset


def test_stop_strings_are_not_part_of_the_text(create, stream):
    whole = create(max_tokens=20, temperature=1.0, seed=3).choices[0].text
    stop = whole[6:8]
    for given in (stop, [stop], ["nothing of it", stop]):
        found = create(max_tokens=20, temperature=1.0, seed=3, stop=given).choices[0]
        assert found.text == whole[: whole.index(stop)]
        assert found.finish_reason == "stop"
    chunks = stream(max_tokens=20, temperature=1.0, seed=3, stop=stop)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole[: whole.index(stop)]


def test_streams_at_the_same_time_do_not_mix(server):
    async def one(seed):
        fields = {"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "seed": seed}
        chunks = await server.openai.completions.create(**fields, stream=True)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    async def several():
        return await asyncio.gather(*(one(seed) for seed in range(8)))

    together = server.run(several())
    assert together == [server.run(one(seed)) for seed in range(8)]
    assert len(set(together)) > 1


WRONG = {
    "best_of": {"best_of": 3},
    "n": {"n": 0},
    "max_tokens": {"max_tokens": 0},
    "prompt": {"prompt": []},
    "temperature": {"temperature": -1.0},
    "top_p": {"top_p": 1.5},
    "suffix": {"suffix": "x"},
    "guided_json": {"extra_body": {"guided_json": {}}},
    "logit_bias": {"logit_bias": {"99999": 1}},
}


@pytest.mark.parametrize("param", WRONG)
def test_wrong_requests_raise_what_the_client_calls_so(create, stream, param):
    for ask in (create, stream):
        with pytest.raises(openai.BadRequestError) as found:
            ask(**WRONG[param])
        assert found.value.param == param
        assert found.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as found:
        create(model="none")
    assert found.value.code == "model_not_found"
