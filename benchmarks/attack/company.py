"""Ask for texts alone and in company: the same seed gives the same text and log-probabilities, bit for bit.

    python -m benchmarks.attack.company --prompts 200

For an LSTM, a GRU, attention, Mamba, an n-gram model and a hybrid, in fp32 and int8: prompts of all lengths with
settings of all kinds are answered alone, by a server that keeps nothing; then by others among 2 to 64 requests that
arrive at random times; in two pieces, of a session that was given away as a value and restored; and by a process that
was started again. A violation is a text, token or log-probability that differs in any bit.
"""

import argparse
import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import BEARER, Client
from benchmarks.attack.small_runs import STORY, runs_in

MODELS = ["lstm", "language-model", "attention", "words", "n-gram", "hybrid"]
BYTES = {**BEARER, "Content-Type": "application/octet-stream"}
FAMILIES = {"language-model": "gru", "words": "mamba"}
LONG = 20.0  # ms within which the requests of a batch arrive

Body = dict[str, Any]


def bodies(model: str, count: int, seed: int) -> list[Body]:
    """Requests with seeds of their own."""
    dice, found = random.Random(f"{seed} {model}"), list[Body]()
    for number in range(count):
        start = dice.randrange(200)
        body: Body = {"prompt": STORY[start : start + dice.choice((0, 1, 5, 20, 90))], "seed": number, "logprobs": 3}
        body |= {"model": model, "max_tokens": dice.choice((1, 7, 20, 40)), "ignore_eos": dice.random() < 0.5}
        body |= dice.choice([{}, {"temperature": 0}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 5}, {"min_p": 0.05}])
        body |= dice.choice([{}, {}, {"repetition_penalty": 1.3}, {"presence_penalty": 1, "frequency_penalty": 0.5}])
        body |= dice.choice([{}, {}, {"logit_bias": {"5": 3, "6": -100}}, {"stop": [" a", "og"]}])
        found.append(body)
    return found


def alone(client: Client, work: list[Body]) -> list[Any]:
    return [client.post("/v1/completions", body).json()["choices"][0] for body in work]


def together(client: Client, work: list[Body], dice: random.Random) -> list[Any]:
    """All requests in random order, 2 to 64 at a time, each of which arrives at a random time."""
    order, found = [*range(len(work))], dict[int, Any]()
    dice.shuffle(order)

    async def one(number: int, delay: float) -> None:
        await asyncio.sleep(delay)
        answer = await client.http.post("/v1/completions", json=work[number], headers=BEARER)
        found[number] = answer.json()["choices"][0]

    async def batch(numbers: list[int]) -> None:
        await asyncio.gather(*(one(number, dice.uniform(0, LONG / 1e3)) for number in numbers))

    while order:
        size = dice.randint(2, 64)
        client.run(batch(order[:size]))
        order = order[size:]
    return [found[number] for number in range(len(work))]


def in_pieces(client: Client, work: list[Body], dice: random.Random) -> list[Any]:
    """The prompt is read by a session, which is given away and restored; the text follows."""
    found = []
    for body in work:
        made = client.post("/v1/sessions", {"model": body["model"], "prompt": body["prompt"]}).json()["id"]
        data = client.get(f"/v1/sessions/{made}/state").content
        path = f"/v1/sessions?model={body['model']}"
        restored = client.ask("POST", path, BYTES, content=data).json()["id"]
        answer = client.post("/v1/completions", {**body, "prompt": "", "session": dice.choice((made, restored))})
        found.append(answer.json()["choices"][0])
        for id in (made, restored):
            client.ask("DELETE", f"/v1/sessions/{id}")
    return found


def same(expected: Any, found: Any, offsets: bool) -> bool:
    """`offsets` are counted from the beginning of the request."""
    one, other = ({**choice, "logprobs": {**choice["logprobs"]}} for choice in (expected, found))
    if not offsets:
        for choice in (one, other):
            choice["logprobs"].pop("text_offset")
    return one == other


def attack(place: Path, model: str, weights: str, count: int, seed: int, campaign: Campaign) -> None:
    """All prompts of one model; answers are compared with those of a server that keeps no states of prompts."""
    work, runs, dice = bodies(model, count, seed), runs_in(place, [model]), random.Random(seed)
    calm = Client(runs, weights=weights, prefix_cache_bytes=1, max_batch=1)
    expected = alone(calm, work)
    calm.close()
    server = Client(runs, weights=weights)
    found = {"in company": together(server, work, dice), "restored": in_pieces(server, work, dice)}
    server.close()
    again = Client(runs, weights=weights)
    found["after a restart"] = together(again, work, dice)
    again.close()
    name = f"{FAMILIES.get(model, model)} {weights}"
    for way, answers in found.items():
        for number, (one, other) in enumerate(zip(expected, answers, strict=True)):
            differs = not same(one, other, way != "restored")
            wrong = [f"prompt {number} {way}: {other} instead of {one}, for {work[number]}"] if differs else []
            campaign.tally(f"{name}, {way}", *wrong)


def options() -> argparse.ArgumentParser:
    found = parser("company", __doc__, 10**9, seed=1)
    found.add_argument("--prompts", type=int, default=200, help="of each model (default: %(default)s)")
    found.add_argument("--models", nargs="+", default=MODELS, choices=MODELS, help="which (default: all)")
    return found


def main() -> None:
    asked = options().parse_args()
    campaign = Campaign(asked)
    done: list[str] = campaign.facts.setdefault("done", [])
    with tempfile.TemporaryDirectory() as place:
        for model in asked.models:
            for weights in ("fp32", "int8"):
                name = f"{model} {weights} {asked.prompts}"
                if name in done or not campaign.more():
                    continue
                attack(Path(place), model, weights, asked.prompts, campaign.seed, campaign)
                done.append(name)
                campaign.write()
    campaign.end()


if __name__ == "__main__":
    main()
