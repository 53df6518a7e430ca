"""Hold very many sessions of a GRU of two layers, 256 wide: what they take of memory, and how long continuing takes.

    python -m benchmarks.attack.held_sessions --held 100000
    python -m benchmarks.attack.held_sessions --held 1000000 --budget-mb 64

A server in a process of its own is filled through its store of sessions, as routes fill it, in a folder that is
deleted at the end. Then sessions drawn at random are continued by two tokens, one after another, in turns with fresh
requests of the same length. A violation is more than 1 GB resident, sessions that are not all there, one that
continues with another text than its neighbours from the same state, and a 99th percentile over twice that of fresh
requests.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser

WIDTH, LAYERS, PAGE = 256, 2, 4096
MOST = 10**9  # bytes resident
REPEATS = 2.0  # of the 99th percentile of fresh requests
STORY = "the cat sat on the mat and saw a big dog\n" * 40


def make_run(place: Path) -> Path:
    import elman

    (place / "story.txt").write_text(STORY)
    data = {"train": str(place / "story.txt"), "valid": str(place / "story.txt")}
    recipe = {"data": data, "model": {"type": "gru", "hidden_size": WIDTH, "num_layers": LAYERS}, "device": "cpu"}
    recipe["training"] = {"max_steps": 3, "batch_size": 4}
    elman.train(recipe, run=place / "gru", progress=False)
    return place / "gru"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def filled(client: Any, held: int) -> list[str]:
    """Creates sessions with the state after a text, through the same method as the route; some ids of them."""
    state, model = client.app.state, "gru"
    first = (await client.http.post("/v1/sessions", json={"prompt": "the cat"}, headers=BEARER())).json()["id"]
    session = await state.sessions.get("ann", first)
    kept, step = [first], max(held // 5000, 1)
    for start in range(0, held - 1, 500):
        # a copy of the bytes each, or all would share one
        work = [
            state.sessions.create("ann", model, session.digest, session.position, bytes(bytearray(session.state)))
            for _ in range(min(500, held - 1 - start))
        ]
        made = await asyncio.gather(*work)
        kept += [one.id for one in made[::step]]
    return kept


def BEARER() -> dict[str, str]:
    from benchmarks.attack.in_process import BEARER as found

    return found


async def timed(client: Any, body: dict[str, Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    answer = await client.http.post("/v1/completions", json=body, headers=BEARER())
    return time.perf_counter() - begun, answer.json()


async def measured(client: Any, kept: list[str], rounds: int) -> dict[str, Any]:
    """Times of continuing sessions at random, and of fresh requests, in turns."""
    dice, texts = random.Random(1), set()
    continued, fresh = list[float](), list[float]()
    fields = {"max_tokens": 2, "seed": 5, "ignore_eos": True}
    for number in range(rounds):
        # as many tokens are read as in the session: the one that was pending, and the new one
        seconds, answer = await timed(client, {**fields, "prompt": "a"})
        fresh.append(seconds)
        seconds, answer = await timed(client, {**fields, "prompt": "a", "session": kept.pop(dice.randrange(len(kept)))})
        continued.append(seconds)
        texts.add(answer["choices"][0]["text"] if "choices" in answer else json.dumps(answer)[:300])
        if number == rounds // 10:  # caches are warm
            continued.clear()
            fresh.clear()
    figures = {"continued": continued, "fresh": fresh}
    found: dict[str, Any] = {
        f"{name} {label} ms": round(1e3 * value, 3)
        for name, values in figures.items()
        for label, value in (("median", statistics.median(values)), ("p99", quantile(values, 0.99)))
    }
    return found | {"texts": sorted(texts)}


def work(run: str, held: int, budget: int, rounds: int) -> dict[str, Any]:
    """In a process of its own."""
    from benchmarks.attack.in_process import Client
    from elman.serving.process import leave_to_the_end

    client = Client([run], session_bytes=budget, session_count=held)
    client.run(client.pool.preload())
    client.run(timed(client, {"prompt": "a", "max_tokens": 2}))
    leave_to_the_end()
    before, begun = resident(), time.perf_counter()
    kept = client.run(filled(client, held))
    seconds = time.perf_counter() - begun
    facts = {"sessions": len(client.app.state.sessions), "resident MB before": before >> 20}
    facts |= {"resident MB": resident() >> 20, "sessions stored per s": round(held / seconds)}
    return facts | client.run(measured(client, kept, rounds))


def options() -> argparse.ArgumentParser:
    found = parser("held_sessions", __doc__, 10**9, seed=1)
    found.add_argument("--held", type=int, default=100_000, help="sessions (default: %(default)s)")
    found.add_argument("--budget-mb", type=int, default=512, help="memory for sessions (default: %(default)s)")
    found.add_argument("--rounds", type=int, default=2000, help="sessions that are continued (default: %(default)s)")
    return found


def problems(facts: dict[str, Any], held: int) -> list[str]:
    wrong = [] if facts["sessions"] == held else [f"{facts['sessions']:,} sessions of {held:,}"]
    wrong += [f"{len(facts['texts'])} texts: {facts['texts'][:3]}"] if len(facts["texts"]) > 1 else []
    if facts["resident MB"] << 20 > MOST:
        wrong.append(f"{facts['resident MB']} MB resident")
    if facts["continued p99 ms"] > REPEATS * facts["fresh p99 ms"]:
        wrong.append(f"continuing takes {facts['continued p99 ms']} ms (p99), a fresh request {facts['fresh p99 ms']}")
    return wrong


def main() -> None:
    asked = options().parse_args()
    campaign = Campaign(asked)
    name = f"{asked.held:,} sessions, {asked.budget_mb} MB of memory for them"
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
        code = f"import json; from benchmarks.attack.held_sessions import work; print(json.dumps(work({str(run)!r}, "
        code += f"{asked.held}, {asked.budget_mb << 20}, {asked.rounds})))"
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    facts = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(facts))
    campaign.facts[name] = facts
    campaign.tally(name, *problems(facts, asked.held), times=asked.held)
    campaign.end()


if __name__ == "__main__":
    main()
