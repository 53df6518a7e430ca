"""End a server under load again and again, by SIGTERM and by SIGKILL, and start it again with the same sessions.

    python -m benchmarks.attack.restarts --count 40

Clients continue sessions of an LSTM and a GRU, half of them as streams. SIGTERM: every request that the server has
accepted, which its log tells, is answered to its end with 200; others get a connection error or 503; the exit code is
0. SIGKILL: nothing is promised to requests that run. After either, every session that was acknowledged is there, with
the same bytes as the client was given (or, where a request was under way, with more text), and continues with the same
text as that value does in another process that was never killed.
"""

import asyncio
import base64
import json
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.http_load import Answer, exchange, request_bytes
from benchmarks.attack.in_process import Client
from benchmarks.attack.server_process import ServerProcess
from benchmarks.attack.small_runs import runs_in
from elman.serving.tokens import new_token, write_token

MODELS = ["lstm", "language-model"]
CLIENTS = 12
CONTINUED = 6  # sessions that are continued after each restart


@dataclass
class Held:
    """A session as its client knows it."""

    id: str
    model: str
    state: bytes  # as acknowledged last
    position: int
    under_way: bool = False  # a request was sent and has not been answered to its end


class Load:
    """Clients of one life of a server, until it ends."""

    def __init__(self, server: ServerProcess, sessions: list[Held], seed: str):
        self.server, self.sessions, self.seed = server, sessions, seed
        self.answers: dict[str, Answer] = {}
        self.over = False

    async def ask(self, path: str, body: Any, id: str) -> Answer:
        request = request_bytes(self.server.host, self.server.token, path, body, id=id)
        self.answers[id] = await exchange(self.server.port, request)
        return self.answers[id]

    async def client(self, number: int) -> None:
        dice, count = random.Random(f"{self.seed} {number}"), 0
        held = self.sessions[number] if number < len(self.sessions) else None
        while not self.over:
            count += 1
            id = f"r-{self.seed}-{number}-{count}"
            if held is None or dice.random() < 0.2:
                held = await self.create(MODELS[number % len(MODELS)], id) or held
            else:
                await self.go_on(held, id, dice)

    async def create(self, model: str, id: str) -> Held | None:
        """A new session, whose state is acknowledged by its first continuation."""
        answer = await self.ask("/v1/sessions", {"model": model, "prompt": "the cat"}, id)
        if not (answer.complete and answer.status == 201):
            return None
        made = answer.json()
        held = Held(made["id"], model, b"", made["position"])
        await self.go_on(held, f"{id}-1", random.Random(id))
        if held.state:
            self.sessions.append(held)
            return held
        return None

    async def go_on(self, held: Held, id: str, dice: random.Random) -> None:
        stream = dice.random() < 0.5
        body = {"model": held.model, "session": held.id, "prompt": " a", "max_tokens": dice.choice((1, 10, 60))}
        body |= {"return_state": True, "ignore_eos": True, "stream": stream}
        held.under_way = True
        answer = await self.ask("/v1/completions", body, id)
        if answer.status != 200 or not answer.complete:
            return
        last = answer.events()[-1] if stream else answer.json()
        held.state, held.position = base64.b64decode(last["state"]), last["session"]["position"]
        held.under_way = False

    async def run(self, number: int, ready: Callable[[], bool]) -> int | None:
        """Signals the server when it is time to; its exit code."""
        clients = [asyncio.ensure_future(self.client(one)) for one in range(CLIENTS)]
        while not ready():
            await asyncio.sleep(0.01)
        self.server.process.send_signal(number)
        code = await asyncio.to_thread(self.server.process.wait, 60)
        self.over = True
        await asyncio.gather(*clients)
        return code


def lost(load: Load, code: int | None) -> list[str]:
    """Requests that the server accepted before SIGTERM, and that were not answered to their end."""
    wrong = [] if code == 0 else [f"exit code {code}"]
    logged = [json.loads(line) for line in load.server.log.read_text().splitlines()]
    accepted = {entry["request"]: entry["status"] for entry in logged if entry["event"] == "request"}
    for id, answer in load.answers.items():
        status = accepted.get(id)
        if status is not None and not (answer.complete and answer.status in (200, 201)):
            wrong.append(f"{id} was accepted, its log says {status}, but its client got {answer[:3]!r:.200}")
        elif answer.status not in (0, 200, 201, 503) or (answer.status and not answer.complete):
            wrong.append(f"{id} got {answer!r:.300}")
    return wrong


class Checked:
    """What a restarted server still has, beside another process with the same key."""

    def __init__(self, place: Path, runs: list[Path]):
        self.other = Client(runs, state_key=place / "sessions" / "state.key")

    def problems(self, server: ServerProcess, sessions: list[Held], dice: random.Random) -> list[str]:
        wrong = []
        for held in sessions:
            status, data = server.ask("GET", f"/v1/sessions/{held.id}/state")
            if status != 200:
                wrong.append(f"session {held.id} is gone: {status} {data[:200]!r}")
                continue
            if data != held.state and not held.under_way:
                wrong.append(f"session {held.id} has other bytes than were acknowledged")
            elif data != held.state:
                now = server.json("GET", f"/v1/sessions/{held.id}")["position"]
                wrong += [] if now > held.position else [f"session {held.id} went back from {held.position} to {now}"]
            held.state, held.under_way = data, False
        for held in dice.sample(sessions, min(CONTINUED, len(sessions))):
            wrong += self.continued(server, held, dice.randrange(2**30))
        return wrong

    def continued(self, server: ServerProcess, held: Held, seed: int) -> list[str]:
        """What is wrong with the next piece of a session."""
        fields = {"model": held.model, "prompt": "", "max_tokens": 20, "seed": seed, "logprobs": 2}
        found = server.json("POST", "/v1/completions", {**fields, "session": held.id, "return_state": True})
        value = base64.b64encode(held.state).decode()
        expected = self.other.post("/v1/completions", {**fields, "state": value}).json()
        held.state, held.position = base64.b64decode(found["state"]), found["session"]["position"]
        return [] if found["choices"] == expected["choices"] else [f"session {held.id} continues with another text"]


def main() -> None:
    campaign = Campaign(parser("restarts", __doc__, 40).parse_args())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        runs = runs_in(place / "runs", MODELS)
        sessions: list[Held] = []
        token = new_token()  # sessions belong to the token that made them
        write_token(place / "token", token)
        totals = campaign.facts.setdefault("requests", 0), campaign.facts.setdefault("sessions", 0)
        requests, checks = totals

        def start(number: int) -> ServerProcess:
            words = [*runs, "--sessions", place / "sessions", "--token-file", place / "token"]
            return ServerProcess(place / f"server-{number}", *words, token=token)

        server = start(campaign.cases)
        checked = Checked(place, runs)
        for number in campaign.numbers():
            dice = random.Random(f"{campaign.seed} {number}")
            kind = (signal.SIGTERM, signal.SIGKILL)[number % 2]
            load = Load(server, sessions, f"{campaign.seed}-{number}")
            until = time.monotonic() + dice.uniform(0.3, 2.0)
            code = asyncio.run(load.run(kind, lambda until=until: time.monotonic() > until))  # type: ignore[misc]
            wrong = lost(load, code) if kind == signal.SIGTERM else []
            server = start(number + 1)
            wrong += checked.problems(server, sessions, dice)
            requests, checks = requests + len(load.answers), checks + len(sessions)
            campaign.facts |= {"requests": requests, "sessions": checks}
            campaign.tally(kind.name, *(f"restart {number}: {text}" for text in wrong))
            campaign.write()
            sessions = sessions[-100:]
        server.kill()
        checked.other.close()
    campaign.facts["note"] = f"{requests:,} requests under way in all; sessions were looked at {checks:,} times"
    campaign.end()


if __name__ == "__main__":
    main()
