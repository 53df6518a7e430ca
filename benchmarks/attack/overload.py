"""Ask ten times more of a server than it can answer: it says so at once, and works as much as before.

    python -m benchmarks.attack.overload --factor 10 --load-seconds 60

The capacity is measured first, with as many clients as rows. Then requests come at that rate times the factor, whether
or not earlier ones have been answered (open loop). A violation is an answer other than 200, 429 or 503, an accepted
request that is not answered to its end with all its tokens, rejects whose 99th percentile is over 100 ms, less than 90
% of the capacity answered in full, memory that grows by more than 10 %, and a server that is not as fast as before ten
seconds after. Times are those of the client, which shares the processor with the server.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.http_load import Answer, exchange, request_bytes
from benchmarks.attack.server_process import ServerProcess, words_of

TOKENS = 64
SETTINGS: dict[str, Any] = {"max_batch": 16, "max_queue": 32, "connections": 1024, "threads": 1, "log_level": "error"}
REJECT, GOODPUT, GROWTH = 0.1, 0.9, 1.1


def make_run(place: Path, width: int) -> Path:
    """A language model of which few requests fill the processor."""
    import elman

    (place / "story.txt").write_text("the cat sat on the mat and saw a big dog\n" * 40)
    data = {"train": str(place / "story.txt"), "valid": str(place / "story.txt")}
    recipe = {"data": data, "model": {"type": "lstm", "hidden_size": width, "num_layers": 2}, "device": "cpu"}
    recipe["training"] = {"max_steps": 1, "batch_size": 2}
    elman.train(recipe, run=place / "lstm", progress=False)
    return place / "lstm"


def request(server: ServerProcess, dice: random.Random) -> bytes:
    body = {"prompt": "the cat", "max_tokens": TOKENS, "ignore_eos": True, "seed": dice.randrange(2**30)}
    return request_bytes(server.host, server.token, "/v1/completions", body)


def whole(answer: Answer) -> bool:
    return answer.complete and answer.status == 200 and answer.json()["usage"]["completion_tokens"] == TOKENS


async def capacity(server: ServerProcess, seconds: float) -> float:
    """Requests per second with as many clients as rows."""
    answered, until = 0, time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal answered
        dice = random.Random(number)
        while time.perf_counter() < until:
            answer = await exchange(server.port, request(server, dice))
            answered += whole(answer)  # not in one line, which would read the sum before it waits

    begun = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(SETTINGS["max_batch"])))
    return answered / (time.perf_counter() - begun)


async def flood(server: ServerProcess, rate: float, seconds: float) -> tuple[list[Answer], float, list[int]]:
    """Answers to requests at this rate, the time that all took, and the memory of the server meanwhile."""
    dice, tasks, sizes = random.Random(1), list[asyncio.Task[Answer]](), list[int]()
    begun = time.perf_counter()
    while (now := time.perf_counter() - begun) < seconds:
        while len(tasks) < now * rate:
            tasks.append(asyncio.ensure_future(exchange(server.port, request(server, dice))))
        if len(sizes) < now:
            sizes.append(server.resident())
        await asyncio.sleep(0.002)
    answers = await asyncio.gather(*tasks)
    return answers, time.perf_counter() - begun, sizes


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def judged(answers: list[Answer], seconds: float, sizes: list[int], before: float, after: float) -> dict[str, Any]:
    good = [one for one in answers if whole(one)]
    rejected = [one.seconds for one in answers if one.status in (429, 503)]
    ms = {
        f"{name} {label} ms": round(1e3 * quantile(values, share), 1)
        for name, values in (("rejected", rejected), ("answered", [one.seconds for one in good]))
        for label, share in (("median", 0.5), ("p99", 0.99))
    }
    facts: dict[str, Any] = {
        "capacity per s": round(before, 1),
        "afterwards per s": round(after, 1),
        "asked": len(answers),
    }
    facts |= {"answered per s": round(len(good) / seconds, 1), "goodput": round(len(good) / seconds / before, 3)}
    facts |= {"statuses": dict(Counter(str(one.status) for one in answers)), "seconds": round(seconds, 1)}
    return facts | ms | {"resident MB": [sizes[len(sizes) // 10] >> 20, max(sizes) >> 20]}


def problems(facts: dict[str, Any], answers: list[Answer]) -> list[str]:
    wrong = [f"answered with {one!r:.200}" for one in answers if one.status not in (200, 429, 503)]
    wrong += [f"cut off: {one!r:.200}" for one in answers if one.status == 200 and not whole(one)]
    if facts["rejected p99 ms"] > 1e3 * REJECT:
        wrong.append(f"rejects take {facts['rejected p99 ms']} ms")
    if facts["goodput"] < GOODPUT:
        wrong.append(f"only {facts['goodput']} of the capacity is answered")
    if facts["resident MB"][1] > GROWTH * facts["resident MB"][0]:
        wrong.append(f"memory grows: {facts['resident MB']} MB")
    if facts["afterwards per s"] < GOODPUT * facts["capacity per s"]:
        wrong.append(f"afterwards only {facts['afterwards per s']} requests per s")
    return wrong[:20]


def options() -> argparse.ArgumentParser:
    found = parser("overload", __doc__, 10**9, seed=1)
    found.add_argument("--factor", type=float, default=10.0, help="of the capacity (default: %(default)s)")
    found.add_argument("--load-seconds", type=float, default=60.0, help="of overload (default: %(default)s)")
    found.add_argument("--width", type=int, default=512, help="of the model (default: %(default)s)")
    return found


def main() -> None:
    asked = options().parse_args()
    campaign = Campaign(asked)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with ServerProcess(place / "server", make_run(place, asked.width), *words_of(SETTINGS)) as server:
            asyncio.run(capacity(server, 3))  # warms up
            before = asyncio.run(capacity(server, 10))
            answers, seconds, sizes = asyncio.run(flood(server, asked.factor * before, asked.load_seconds))
            after = asyncio.run(capacity(server, 10))
    facts = judged(answers, seconds, sizes, before, after)
    print(facts)
    campaign.facts |= facts
    campaign.facts["note"] = (
        f"{asked.factor:g} times the capacity of {facts['capacity per s']} requests per s for {seconds:.0f} s: goodput "
        f"{facts['goodput']:.0%} of it, rejects p99 {facts['rejected p99 ms']} ms, memory {facts['resident MB']} MB, "
        f"{facts['afterwards per s']} requests per s afterwards"
    )
    for status, count in facts["statuses"].items():
        campaign.tally({"200": "answered", "429": "rejected", "503": "rejected"}.get(status, status), times=count)
    campaign.report("overload", *problems(facts, answers))
    campaign.end()


if __name__ == "__main__":
    main()
