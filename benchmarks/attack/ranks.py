"""Disturb two ranks of torchrun that train together (CPU, gloo): the job finishes or ends with a message.

Resumed to its end, it has the weights of an undisturbed one.

    python -m benchmarks.attack.ranks --count 100

Ranks are killed, stopped, slowed down and asked to end (SIGTERM, SIGHUP, SIGINT); so is torchrun's agent. With the
right to make network namespaces, two agents in one each are cut off from each other: the link goes down from when both
ranks run until they have ended. The agents are torch's, forked from a process with all modules imported. One that gets
a signal before it handles signals, which is before it has started a rank, must end by it and leave nothing behind. A
rank that is stopped when training has ended, and the other has left, is continued: nobody waits for it.
"""

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.kinds import left, write_data

RECIPE: dict[str, Any] = {
    "device": "cpu",
    "data": {"train": "text.txt", "boundary": "carry"},
    "tokenizer": "character",
    "model": {"type": "lstm", "hidden_size": 8, "num_layers": 2, "dropout": 0.3},
    "training": {"sequence_length": 8, "batch_size": 5, "micro_batches": 2, "max_steps": 60, "evaluate_every": 20},
    "generation": {"max_tokens": 5},
}
RECIPE["training"] |= {"save_every": 7, "schedule": "cosine", "optimizer": "adamw"}
PATIENT = 4  # seconds that a rank waits for the other in a step while it is disturbed; 30 times that while it saves
NODES = {"join_timeout": 300, "read_timeout": 20}  # seconds that torch's agents wait for each other
HANG = 900.0  # seconds after which a job that has not ended hangs
FAULTS = 6  # of one run at the most, then it may end
MESSAGES: tuple[str, ...] = (
    "elman: ",
    "continue with:",
    "the process that started this one has ended",
    "failed (exitcode",
)
MESSAGES += ("got signal: ",)  # of torch's agent, where its ranks had not begun to handle signals
CLONE_NEWNET = 0x40000000
SPACES = {"elman-a": "10.213.77.1", "elman-b": "10.213.77.2"}
ADDRESSES = [*SPACES.values()]


class Job:
    """torchrun's agents, one on each node, in a process group of their own each; `spaces` are network namespaces."""

    def __init__(self, folder: Path, patience: int = 120, spaces: tuple[str, ...] = ()):
        self.folder, self.log = folder, folder.parent / "log.txt"
        self.log.write_bytes(b"")
        for path in self._ranks.glob("*"):
            path.unlink()
        self.unheard = 0  # a signal that was sent to an agent which had no handler for it yet
        self.agents = [self._fork(patience, spaces, node) for node in range(max(1, len(spaces)))]
        self.codes: dict[int, int] = {}

    @property
    def _ranks(self) -> Path:
        return self.folder.parent / "ranks"

    @property
    def began(self) -> bool:
        """Whether a rank of it has run."""
        return any(self._ranks.iterdir())

    def _fork(self, patience: int, spaces: tuple[str, ...], node: int) -> int:
        agent = os.fork()
        if agent:
            return agent
        code = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            file = os.open(self.log, os.O_WRONLY | os.O_APPEND)
            for number in (1, 2):
                os.dup2(file, number)
            os.environ |= {"ELMAN_LIMITS": f"rank_seconds={patience}", "OMP_NUM_THREADS": "1"}
            if spaces:
                _enter(spaces[node])
                os.environ["GLOO_SOCKET_IFNAME"] = spaces[node]
            _launch(self.folder, spaces, node)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def ended(self) -> bool:
        for agent in self.agents:
            if agent not in self.codes:
                with suppress(ChildProcessError):
                    found, status = os.waitpid(agent, os.WNOHANG)
                    if found:
                        self.codes[agent] = os.waitstatus_to_exitcode(status)
        return len(self.codes) == len(self.agents) and not self.ranks()

    def ranks(self) -> dict[int, int]:
        """Process ids by rank."""
        found = {}
        for path in self._ranks.glob("*"):
            with suppress(OSError, ValueError):
                process = int(path.read_text())
                ours = os.getpgid(process) in self.agents  # else the number is another process's by now
                if ours and "zombie" not in Path(f"/proc/{process}/status").read_text():
                    found[int(path.name)] = process
        return found

    def waits_for_last(self) -> bool:
        """Whether training has ended, and nothing is left of it but a rank that is stopped."""
        if len(ranks := [*self.ranks().values()]) != 1 or b"\nended: " not in self.log.read_bytes():
            return False
        with suppress(OSError):
            return "State:\tT" in Path(f"/proc/{ranks[0]}/status").read_text()
        return False

    def until(self, reached: Callable[[], bool]) -> None:
        """Waits for something, or for its end; not for ever."""
        end = time.monotonic() + HANG
        while not reached() and not self.ended() and time.monotonic() < end:
            time.sleep(0.01)

    def wait(self) -> bool:
        """Whether it ended in time; else it is killed."""
        self.until(lambda: False)
        in_time = self.ended()
        self.kill()
        return in_time

    def kill(self) -> None:
        for process in [*self.ranks().values(), *(one for one in self.agents if one not in self.codes)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        while not self.ended():
            time.sleep(0.02)


def _launch(folder: Path, spaces: tuple[str, ...], node: int) -> None:
    """What `torchrun` does, but that ranks are forked."""
    from torch.distributed.launcher import api

    patient = partial(api.LocalElasticAgent, exit_barrier_timeout=2 * PATIENT)  # instead of 300 seconds
    api.LocalElasticAgent = patient  # type: ignore[assignment,misc]
    config = api.LaunchConfig(
        min_nodes=max(1, len(spaces)),
        max_nodes=max(1, len(spaces)),
        nproc_per_node=1 if spaces else 2,
        run_id=folder.name,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{ADDRESSES[0]}:29533" if spaces else "127.0.0.1:0",
        rdzv_configs={"is_host": node == 0, **NODES} if spaces else {},
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
        local_addr=ADDRESSES[node] if spaces else "127.0.0.1",
        shutdown_timeout=2 * PATIENT,
    )
    api.elastic_launch(config, _rank)(str(folder))


def _rank(folder: str) -> None:
    """One rank: `elman train --resume`."""
    from elman.cli.main import main

    home = Path(folder).parent
    (home / "ranks" / os.environ["RANK"]).write_text(str(os.getpid()))
    os.chdir(home)
    main(["train", "recipe.json", "--run", Path(folder).name, "--resume"])


def _enter(space: str) -> None:
    """Joins a network namespace."""
    with open(f"/var/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the namespace")


def _ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0


@contextmanager
def namespaces(wanted: bool) -> Iterator[bool]:
    """Two network namespaces with a link between them, if this process may make them."""
    made = False
    try:
        made = wanted and all(_ip("netns", "add", space, check=False) for space in SPACES)
        if made:
            first, second = SPACES
            _ip("link", "add", first, "netns", first, "type", "veth", "peer", "name", second, "netns", second)
            for space, address in SPACES.items():
                _ip("-n", space, "addr", "add", f"{address}/24", "dev", space)
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "link", "set", space, "up")
        yield made
    except FileNotFoundError:  # no `ip`
        yield False
    finally:
        if made:
            for space in SPACES:
                _ip("netns", "del", space, check=False)


def _connected(up: bool) -> None:
    space = next(iter(SPACES))
    _ip("-n", space, "link", "set", space, "up" if up else "down")


class Fault(NamedTuple):
    """What is done to a job at a random time; `spaces` are the network namespaces of its nodes."""

    act: Callable[[Job, random.Random], None]
    spaces: tuple[str, ...] = ()


def _signal(number: int, agent: bool = False) -> Callable[[Job, random.Random], None]:
    def act(job: Job, dice: random.Random) -> None:
        targets = [one for one in job.agents if one not in job.codes] if agent else [*job.ranks().values()]
        if targets:
            target = dice.choice(targets)
            with suppress(ProcessLookupError, FileNotFoundError):
                job.unheard = number if agent and not _handles(target, number) else 0
                os.kill(target, number)

    return act


def _handles(process: int, number: int) -> bool:
    """Whether a process has a handler for a signal, by the mask of those that it catches."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)


def _slow(job: Job, dice: random.Random) -> None:
    """A rank runs a fifth of the time for a while."""
    for _ in range(dice.randint(2, 8)):
        slowed = [*job.ranks().values()][:1]  # the same one is continued, whoever comes meanwhile
        for number, pause in ((signal.SIGSTOP, 0.2), (signal.SIGCONT, 0.05)):
            with suppress(ProcessLookupError):
                for process in slowed:
                    os.kill(process, number)
            time.sleep(pause)


def _cut(job: Job, dice: random.Random) -> None:
    _connected(False)


TWO = tuple(SPACES)
KINDS: dict[str, Fault] = {
    "kill a rank": Fault(_signal(signal.SIGKILL)),
    "stop a rank": Fault(_signal(signal.SIGSTOP)),
    "slow rank": Fault(_slow),
    "SIGTERM to a rank": Fault(_signal(signal.SIGTERM)),
    "SIGHUP to a rank": Fault(_signal(signal.SIGHUP)),
    "SIGINT to a rank": Fault(_signal(signal.SIGINT)),
    "SIGTERM to the agent": Fault(_signal(signal.SIGTERM, agent=True)),
    "SIGHUP to the agent": Fault(_signal(signal.SIGHUP, agent=True)),
    "kill the agent": Fault(_signal(signal.SIGKILL, agent=True)),
    "network cut": Fault(_cut, TWO),
    "kill a rank of two nodes": Fault(_signal(signal.SIGKILL), TWO),
}


def disturb(run: Path, fault: Fault, moment: float, dice: random.Random) -> str:
    """What went wrong, if anything, after one fault at so many seconds."""
    job, before = Job(run, PATIENT, fault.spaces), _files(run)
    if fault.spaces:  # before, torch's agents look for each other, and wait as long as torch wants
        job.until(lambda: len(job.ranks()) == len(fault.spaces))
    begun = time.monotonic()
    job.until(lambda: time.monotonic() - begun >= moment)
    fault.act(job, dice)
    if fault is KINDS["stop a rank"]:
        job.until(job.waits_for_last)
        for process in job.ranks().values():
            os.kill(process, signal.SIGCONT)
    if fault.spaces:
        job.until(lambda: not job.ranks())
        _connected(True)
    in_time = job.wait()
    said = job.log.read_text(errors="replace")
    if not in_time:
        return f"does not end: {_told(said)}"
    number = signal.SIGKILL if fault is KINDS["kill the agent"] else job.unheard
    if (run / "results.json").exists():
        return ""  # it finished all the same; whether rightly, is seen at the end
    if number and not job.began and {*job.codes.values()} == {-number}:  # nobody was left to say anything
        return "" if _files(run) == before else f"an agent that had not begun left {_files(run) - before}"
    if any(job.codes.values()) and not any(words in said for words in MESSAGES):
        return f"exit codes {[*job.codes.values()]} without a message: {_told(said)}"
    return ""


def _files(run: Path) -> set[Path]:
    return {*run.rglob("*")}


def finish(run: Path, spaces: tuple[str, ...] = ()) -> str:
    """Trains to the end without a fault; what went wrong, if anything."""
    job = Job(run, spaces=spaces)
    in_time = job.wait()
    said = job.log.read_text(errors="replace")
    return "" if in_time and not any(job.codes.values()) else f"cannot be resumed: {_told(said)}"


def _told(said: str) -> str:
    """elman's lines of a log and its end."""
    return "\n".join([*(line for line in said.splitlines() if line.startswith("elman: ")), said[-500:]])


def attack(campaign: Campaign, place: Path) -> None:
    os.chdir(place)
    write_data()
    Path("recipe.json").write_text(json.dumps(RECIPE))
    Path("ranks").mkdir()
    begun = time.monotonic()
    assert not (problem := finish(place / "undisturbed")), problem
    whole, expected = time.monotonic() - begun, left(place / "undisturbed", plots=False)
    number = 0
    while campaign.more():
        number += 1
        run, problems = place / f"run-{number}", list[str]()
        for _ in range(FAULTS):
            if not campaign.more() or (run / "results.json").exists():
                break
            kind = min(campaign.kinds, key=lambda one: (campaign.counts[one], campaign.dice.random()))
            problem = disturb(run, KINDS[kind], campaign.dice.uniform(0, 1.2 * whole), campaign.dice)
            campaign.tally(kind, *([problem] if problem else []))
        if problem := finish(run):
            problems.append(problem)
        else:
            found = left(run, plots=False)
            problems += [f"{key} differs" for key in expected if found.get(key) != expected[key]]
        campaign.report(f"run {number}", *problems)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # namespaces are removed then too
    campaign = Campaign(parser("ranks", __doc__, 100, [*KINDS]).parse_args())
    with namespaces(any(KINDS[one].spaces for one in campaign.kinds)) as made, TemporaryDirectory() as place:
        if not made:
            campaign.kinds = [one for one in campaign.kinds if not KINDS[one].spaces]
            print(f"without network namespaces: {', '.join(campaign.kinds)}", flush=True)
        for module in ("matplotlib.backends.backend_agg", "torch._dynamo", "torch.distributed.launcher.api"):
            import_module(module)
        for module in ("cli.train", "pipeline.progress", "pipeline.session"):
            import_module(f"elman.{module}")
        torch.set_num_threads(1)
        attack(campaign, Path(place))
        os.chdir("/")
    campaign.end()


if __name__ == "__main__":
    main()
