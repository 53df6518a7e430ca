"""Workers in the processes of a torchrun job, on one or several machines that share the race's folder.

    torchrun --nnodes 2 --nproc-per-node 1 ... -m -- elman compare my.txt --run /shared/race --resume

Rank 0 runs the race; the others wait for run folders to train, which it puts into torchrun's key-value store.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from elman.comparison.workers import LocalWorker, SpawningWorker, Worker, worker_environment
from elman.processes import end_with_parent

POLL = 0.1  # seconds between two reads of the store
FIRST = 1


def processes() -> int:
    """World size; 1 outside of torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    return os.environ.get("RANK", "0") == "0"


class RankWorker:
    """A worker in the process of another rank."""

    def __init__(self, store: Any, rank: int):
        self.store, self.rank, self.number, self.killed = store, rank, FIRST, False

    def train(self, folder: Path) -> dict[str, Any]:
        key = f"{self.rank}/{self.number}"
        self.store.set(key, str(folder.absolute()))
        while not self.store.check([f"{key}/ended"]):
            if self.killed:
                raise OSError(f"process {self.rank} of the job does not answer")
            time.sleep(POLL)
        self.number += 1
        return json.loads(self.store.get(f"{key}/ended"))

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.store.set(f"{self.rank}/{self.number}/interrupt", str(int(number)))
        self.killed = number == signal.SIGKILL

    def close(self) -> None:
        self.store.set(f"{self.rank}/{self.number}", "")


def places(modules: Sequence[str | Path] = ()) -> list[Worker]:
    """One worker per process of the job, this one included; the others must call `serve`."""
    store = _store()
    return [_own(modules), *(RankWorker(store, rank) for rank in range(1, processes()))]


def serve(modules: Sequence[str | Path] = (), store: Any = None, rank: int | None = None) -> None:
    """Train the run folders that rank 0 names, until it closes."""
    store = _store() if store is None else store
    rank = int(os.environ["RANK"]) if rank is None else rank
    own, number = _own(modules), FIRST
    try:
        while folder := _next_folder(store, f"{rank}/{number}"):
            _train(own, Path(folder), store, f"{rank}/{number}")
            number += 1
    finally:
        own.close()


def _next_folder(store: Any, key: str) -> str:
    while not store.check([key]):
        time.sleep(POLL)
    return store.get(key).decode()


def _train(own: SpawningWorker, folder: Path, store: Any, key: str) -> None:
    """Train a run and store its exit code; interrupts of rank 0 and of this process are passed on."""
    ended: dict[str, Any] = {"code": 1}

    def train() -> None:
        try:
            ended.update(own.train(folder))
        except OSError as error:
            ended["problem"] = str(error)

    thread, received = Thread(target=train), ""
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL)
            if store.check([f"{key}/interrupt"]) and received != (received := store.get(f"{key}/interrupt").decode()):
                own.interrupt(int(received))
    except BaseException:
        own.interrupt()
        thread.join()
        raise
    finally:
        store.set(f"{key}/ended", json.dumps(ended))


def _own(modules: Sequence[str | Path]) -> SpawningWorker:
    import torch

    return LocalWorker(worker_environment(int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()), modules)


def _store() -> Any:
    import torch.distributed as dist

    end_with_parent()
    store, _, _ = next(dist.rendezvous("env://"))
    # torchrun keeps its store when it restarts the job: requests from before must not be seen
    return dist.PrefixStore(f"race {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
