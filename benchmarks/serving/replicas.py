"""Requests, streams and sessions while a replica of `elman serve --ray local` is killed.

    python -m benchmarks.serving.replicas RUN --requests 400

RUN is a language model. Clients try again, as OpenAI's does, and every text is compared with that of the model in this
process. Half of the requests are streams. Needs elman[ray], and /proc to find the replica.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import openai

import elman
from benchmarks.reporting import write

TOKENS = 24  # of each text
TRIES, PAUSE = 50, 0.2  # of a request, and seconds between them
STARTING, ENDING = 300, 120  # seconds
LOST = (openai.APIConnectionError, openai.InternalServerError, httpx.HTTPError)


@contextmanager
def cluster_server(run: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server with replicas: its process, address and token."""
    command = [sys.executable, "-m", "elman", "serve", str(run), "--ray", "local", "--threads", "1"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*command, "--port", "0", *words], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        killer = threading.Timer(STARTING, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            shown = "".join(process.stdout.readline() for _ in range(3))
            killer.cancel()
            address, token = re.search(r"on (\S+)", shown), re.search(r"^TOKEN=(\S+)", shown, re.MULTILINE)
            if address is None or token is None:
                log.seek(0)
                raise SystemExit(f"the server did not start: {log.read()[-2000:]}")
            yield process, address[1], token[1]
        finally:
            killer.cancel()
            process.terminate()
            process.wait(ENDING)


def replicas_of(process: int) -> list[int]:
    """Processes below this one that are replicas."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(place.name)] = (place / "cmdline").read_text()
        except OSError:
            continue
    own = {process}
    while new := {child for child, parent in parents.items() if parent in own} - own:
        own |= new
    return sorted(one for one in own if titles.get(one, "").startswith("ray::ServeReplica"))


@dataclass
class Clients:
    """Who asks, and tries again."""

    client: openai.OpenAI
    failures: list[str] = field(default_factory=list)

    def insist(self, ask: Any) -> Any:
        for _ in range(TRIES):
            try:
                return ask()
            except LOST as error:
                self.failures.append(type(error).__name__)
                time.sleep(PAUSE)
        raise SystemExit(f"a request was refused {TRIES} times")

    def text(self, **more: Any) -> str:
        """Of a completion; seeds that are odd are streamed."""
        if not more["seed"] % 2:
            return self.insist(lambda: self.complete(**more)).choices[0].text
        return self.insist(lambda: "".join(part.choices[0].text for part in self.complete(stream=True, **more)))

    def complete(self, **more: Any) -> Any:
        own = {name: more.pop(name) for name in ("session", "state", "return_state") if name in more}
        return self.client.completions.create(model="", max_tokens=TOKENS, extra_body={"model": None, **own}, **more)

    def session(self) -> str:
        made = self.client.post("/sessions", body={"prompt": "the cat"}, cast_to=httpx.Response)
        return made.json()["id"]

    def fork(self, id: str) -> str:
        return self.client.post(f"/sessions/{id}/fork", cast_to=httpx.Response).json()["id"]


def disturbed(
    run: Path, requests: int, streams: int, check: Callable[[str, str], None] = lambda address, token: None
) -> dict[str, Any]:
    """Kills a replica when a third has been answered; counts what was lost, and what differs. `check` comes first."""
    model = elman.load(run, "cpu")
    prompts = [("the cat sat", seed) for seed in range(requests)]
    expected = [model.generate(text, max_tokens=TOKENS, seed=seed) for text, seed in prompts]
    with cluster_server(run, "--replicas", "2") as (process, address, token):
        check(address, token)
        clients = Clients(openai.OpenAI(base_url=f"{address}/v1", api_key=token, max_retries=0, timeout=120))
        session, found, begun = clients.session(), dict[int, str](), time.monotonic()
        other = clients.fork(session)
        whole = [clients.text(prompt="", seed=seed, session=other) for seed in (100, 102)]
        first = clients.text(prompt="", seed=100, session=session)
        state = clients.complete(prompt="the cat", seed=100, return_state=True)
        third = threading.Event()

        def ask(number: int) -> None:
            text, seed = prompts[number]
            found[number] = clients.text(prompt=text, seed=seed)
            if len(found) >= requests // 3:
                third.set()

        with ThreadPoolExecutor(streams) as pool:
            answers = [pool.submit(ask, number) for number in range(requests)]
            third.wait(ENDING)
            before = replicas_of(process.pid)
            os.kill(before[0], signal.SIGKILL)
            second = clients.text(prompt="", seed=102, session=session)
            after = clients.text(prompt="", seed=102, state=state.state)
            for answer in answers:
                answer.result()
        seconds = time.monotonic() - begun
        clients.client.close()
        process.terminate()
        code = process.wait(ENDING)
    return {
        "replicas before": len(before),
        "requests": requests,
        "streams at a time": streams,
        "seconds": round(seconds, 1),
        "lost": requests - len(found),
        "texts that differ": sum(found[number] != text for number, text in enumerate(expected)),
        "tries that failed": len(clients.failures),
        "session goes on with the same text": [first, second] == whole,
        "state goes on with the same text": after == whole[1],
        "exit code": code,
    }


def grown(run: Path, streams: int) -> dict[str, Any]:
    """Replicas under a load that is too much for one, which answers one request at a time."""
    words = ["--replicas", "1", "--max-replicas", "2", "--max-batch", "1"]
    with cluster_server(run, *words) as (process, address, token):
        clients = Clients(openai.OpenAI(base_url=f"{address}/v1", api_key=token, max_retries=10, timeout=120))
        begun, ended = time.monotonic(), threading.Event()

        def ask(seed: int) -> None:
            while not ended.is_set():
                clients.complete(prompt="the cat", seed=seed)

        before = len(replicas_of(process.pid))
        with ThreadPoolExecutor(streams) as pool:
            answers = [pool.submit(ask, number) for number in range(streams)]
            while len(replicas_of(process.pid)) < 2 and time.monotonic() - begun < ENDING:
                time.sleep(PAUSE)
            seconds = time.monotonic() - begun
            ended.set()
            for answer in answers:
                answer.result()
        after = len(replicas_of(process.pid))
        clients.client.close()
    return {"before": before, "after": after, "streams at a time": streams, "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--streams", type=int, default=16)
    options = parser.parse_args()
    results: dict[str, Any] = {"ray": version("ray"), "openai": version("openai")}
    results["one of two is killed"] = disturbed(options.run, options.requests, options.streams)
    results["more load than one replica takes"] = grown(options.run, options.streams)
    print(results)
    print(write("replicas", results))


if __name__ == "__main__":
    main()
