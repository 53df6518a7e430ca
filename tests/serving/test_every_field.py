"""Every field of every route refuses what it cannot use, by its name, whatever the route."""

import json

import pytest
from served import BEARER, error_of

NAMES = ["classify", "tag", "translate", "masked", "regress", "language-model", "words"]
JSON = {**BEARER, "Content-Type": "application/json"}
NEEDED = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"input": "a"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    **{f"/{task}": {"input": "a"} for task in ("classify", "tag", "translate", "fill", "regress")},
}
OPEN = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
"""What OpenAI's clients send, and no answer depends on."""
MODELS = {"/classify": "classify", "/tag": "tag", "/translate": "translate", "/fill": "masked", "/regress": "regress"}
WRONG = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "[[[]]]", '{"a":{"b":1}}', "-1e30", "0.123e-400x"]


def resolved(schema, whole):
    reference = schema.get("$ref")
    return whole["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema


@pytest.fixture(scope="module")
def described(runs):
    """A client, and the fields of each route with a JSON body."""
    from served import Client

    ask = Client([runs[name] for name in NAMES], max_tokens=8)
    whole = ask.get("/openapi.json").json()
    fields = {}
    for path, methods in whole["paths"].items():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                fields[path] = sorted(resolved(content["application/json"]["schema"], whole)["properties"])
    yield ask, fields
    ask.close()


@pytest.mark.slow
def test_a_wrong_value_of_any_field_is_refused_by_its_name(described):
    """Catches a field that is not checked, and a number that is not finite and has no name in the error."""
    ask, fields = described
    assert sum(map(len, fields.values())) > 100
    for path, names in fields.items():
        model = MODELS.get(path, "language-model")
        for name in names:
            if name in OPEN and not (path == "/v1/responses" and name == "metadata"):
                continue
            for wrong in WRONG[:-1]:
                body = {"model": model, **NEEDED.get(path, {}), name: "?"}
                text = json.dumps(body).replace('"?"', wrong)
                found = ask.ask("POST", path, headers=JSON, content=text)
                assert found.status_code == 400, (path, text, found.text)
                assert (error_of(found)["param"] or "").split(".")[0] == name, (path, text, found.text)


@pytest.mark.slow
def test_a_field_that_nobody_knows_is_refused_by_its_name(described):
    ask, fields = described
    for path in fields:
        for name in ("zzz", "temperatur", "__class__", "model_config"):
            body = {"model": MODELS.get(path, "language-model"), **NEEDED.get(path, {}), name: 1}
            found = ask.post(path, body)
            assert (found.status_code, error_of(found)["param"]) == (400, name), (path, found.text)


@pytest.mark.slow
def test_long_lists_and_many_names_are_refused_at_once(described, monkeypatch):
    """Catches an error for each item, which takes seconds; a validation then has hundreds of thousands of them."""
    from fastapi.exceptions import RequestValidationError

    counts = []
    errors = RequestValidationError.errors
    monkeypatch.setattr(RequestValidationError, "errors", lambda self: counts.append(len(errors(self))) or errors(self))
    ask, fields = described
    lists = [[-1] * 20_000, [[]] * 20_000, [1.5] * 20_000, [{"role": 1}] * 20_000, ["a", *[1] * 20_000]]
    for path, names in fields.items():
        for name in ({"prompt", "tokens", "input", "messages", "stop"} & {*names}) - {"model"}:
            for value in lists:
                found = ask.post(
                    path, {"model": MODELS.get(path, "language-model"), **NEEDED.get(path, {}), name: value}
                )
                assert found.status_code == 400, (path, name, found.text[:200])
        found = ask.post(path, {f"a{number}": 1 for number in range(20_000)})
        assert (found.status_code, "has 20,000 names" in found.text) == (400, True), path
    assert max(counts) < 100
