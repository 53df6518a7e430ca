"""Ask every route what its OpenAPI description allows and what it forbids, with a token and without (schemathesis).

    pip install 'schemathesis>=4.30'
    python -m benchmarks.attack.schema --count 50000

A server in this process has tiny models of every task. Half of the requests are valid by the schema; of these, most
are changed to name a model or session that is there and to stay within the limits, so that they reach the models. The
other half break the schema in one place. Each is sent twice, once without a token. A violation is status 500, an
answer that takes more than 20 seconds, one that the schema does not describe, one that names a path or holds a
traceback or a token, a request against the schema that is accepted, and anything but 401 without a token.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import ADDRESS, BEARER, Client, wrong_answer
from benchmarks.attack.small_runs import RECIPES, runs_in
from elman.serving.security import PUBLIC

SLOW = 20.0  # seconds
BATCH = 20  # requests of one route and kind in a row
LIMITS: dict[str, Any] = {
    "max_tokens": 32,
    "max_choices": 4,
    "max_inputs": 8,
    "prompt_bytes": 2000,
    "session_count": 2000,
}
FITTED = 0.8  # of valid requests
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
LARGEST = {
    "max_tokens": 32, "max_completion_tokens": 32, "max_output_tokens": 32, "n": 4, "best_of": 4, "logprobs": 20,
    "top_logprobs": 20, "beam_size": 4,
}  # fmt: skip
TEXT_MODELS = ["language-model", "n-gram", "attention", "words", "hybrid"]
OWN_MODELS = {"/classify": ["classify", "several"], "/tag": ["tag"], "/translate": ["translate"], "/fill": ["masked"]}
OWN_MODELS |= {"/regress": ["regress"], "/tokenize": TEXT_MODELS, "/detokenize": TEXT_MODELS}
CONFLICTS = ("session", "state", "previous_response_id")


class Target:
    """A server with all models, and a session and a response that are there."""

    def __init__(self, place: Path):
        self.client = Client(runs_in(place), **LIMITS)
        self.client.run(self.client.pool.preload())
        schema = schemathesis.openapi.from_dict(self.client.get("/openapi.json").json())
        self.operations = [found.ok() for found in schema.get_all_operations()]
        self.slowest = 0.0

    def session(self) -> str:
        return str(self.client.post("/v1/sessions", {"model": "language-model", "prompt": "the"}).json()["id"])

    def response(self) -> str:
        body = {"model": "language-model", "input": "the", "max_output_tokens": 1}
        return str(self.client.post("/v1/responses", body).json()["id"])

    def fit(self, case: Any, valid: bool, dice: random.Random) -> None:
        """Names what is there; keeps a valid request within the limits of the server."""
        for name in case.path_parameters or {}:
            made = self.response if "responses" in case.path else self.session
            case.path_parameters[name] = dice.choice([*RECIPES]) if "models" in case.path else made()
        body = case.body
        if not isinstance(body, dict):
            return
        if valid or "model" not in body:
            body["model"] = dice.choice(OWN_MODELS.get(case.path, TEXT_MODELS))
        if valid:
            within_limits(body, dice)

    def send(self, case: Any, headers: dict[str, str]) -> tuple[httpx.Response, float]:
        arguments = {**case.as_transport_kwargs(base_url=ADDRESS)}
        arguments["headers"] = {**(arguments.get("headers") or {}), **headers}
        arguments.pop("cookies", None)
        begun = time.monotonic()

        async def ask() -> httpx.Response:
            async with asyncio.timeout(SLOW):
                return await self.client.http.request(**arguments)

        answer = self.client.run(ask())
        seconds = time.monotonic() - begun
        self.slowest = max(self.slowest, seconds)
        return answer, seconds

    def judge(self, case: Any, token: bool) -> tuple[str, list[str]]:
        """How one request was answered, and what is wrong with that."""
        shown = f"{case.method} {case.formatted_path} {str(case.query)[:80]} {str(case.body)[:400]}"
        try:
            answer, _ = self.send(case, BEARER if token else {})
        except TimeoutError:
            return "hang", [f"no answer to {shown}"]
        except Exception as problem:  # of the application: nothing has answered
            return "crash", [f"{type(problem).__name__} at {shown}"]
        wrong = wrong_answer(answer.status_code, answer.content, answer.headers.get("content-type", ""))
        if not token and case.path not in PUBLIC and answer.status_code not in (401, 413, 415, 431):
            wrong.append(f"status {answer.status_code} without a token")
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as found:
            wrong += [f"{one.title}: {one.message[:300]} (status {answer.status_code})" for one in found.exceptions]
        return f"{answer.status_code // 100}xx", [f"{one}: {shown}" for one in wrong]


def within_limits(body: dict[str, Any], dice: random.Random) -> None:
    for name, most in LARGEST.items():
        if isinstance(body.get(name), int | float) and not isinstance(body[name], bool):
            body[name] = 1 + int(body[name]) % most
    if "best_of" in body:
        body["best_of"] = body.get("n") or 1
    for name in CONFLICTS:
        body.pop(name, None)
    if not body.get("stream"):
        body.pop("stream_options", None)
    if isinstance(body.get("logit_bias"), dict):
        body["logit_bias"] = {str(dice.randrange(8)): bias for bias in body["logit_bias"].values()}
    for name in {"prompt", "tokens"} & {*body}:
        body[name] = small_tokens(body[name])


def small_tokens(given: Any) -> Any:
    if isinstance(given, list):
        return [small_tokens(one) for one in given]
    return given % 8 if isinstance(given, int) and not isinstance(given, bool) else given


def batch(target: Target, number: int, seed_number: int) -> Iterator[tuple[str, list[str]]]:
    """Requests of one route and kind; which, says the number."""
    operations = [one for one in target.operations for _ in range(4 if one.method == "post" else 1)]
    operation, valid = operations[number % len(operations)], number // len(operations) % 2 == 0
    mode = GenerationMode.POSITIVE if valid else GenerationMode.NEGATIVE
    dice, cases = random.Random(f"{seed_number} {number}"), list[Any]()

    @seed(dice.randrange(2**32))
    @settings(
        max_examples=BATCH, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(operation.as_strategy(generation_mode=mode))
    def draw(case: Any) -> None:
        cases.append(case)

    try:
        draw()
    except Exception as problem:  # no such request can be drawn, such as an invalid one where everything is valid
        if "Unsatisfiable" not in type(problem).__name__:
            raise
    for case in cases:
        if not valid or dice.random() < FITTED:
            target.fit(case, valid, dice)
        yield from (target.judge(case, token) for token in (True, False))


def options() -> argparse.ArgumentParser:
    return parser("schema", __doc__, 50_000)


def main() -> None:
    campaign = Campaign(options().parse_args())
    with tempfile.TemporaryDirectory() as place:
        target = Target(Path(place))
        while campaign.more():
            number = campaign.next.get("batch", 0)
            for outcome, wrong in batch(target, number, campaign.seed):
                campaign.tally(outcome, *wrong)
            campaign.next["batch"] = number + 1
        slowest = max(target.slowest, campaign.facts.get("slowest answer in s", 0.0))
        campaign.facts |= {"slowest answer in s": round(slowest, 3), "schemathesis": schemathesis.__version__}
        target.client.close()
    campaign.end()


if __name__ == "__main__":
    main()
