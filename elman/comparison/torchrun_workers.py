"""Places in the other processes of a torchrun job, on as many machines as it has; all of them share the race's folder.

    torchrun --nnodes 2 --nproc-per-node 1 ... -m -- elman compare my.txt --run /shared/race --resume

The first process runs the race, the others serve it: each asks torchrun's store for the next folder to train in.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from elman.comparison.workers import BEST, Launcher, Worker, own_share

LOOK = 0.1  # seconds between two looks at the store
FIRST = 1


def processes() -> int:
    """Of the job; one where nobody started it by torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    return os.environ.get("RANK", "0") == "0"


class Distant:
    """The process of another rank."""

    def __init__(self, store: Any, rank: int):
        self.store, self.rank, self.number, self.killed = store, rank, FIRST, False

    def train(self, folder: Path) -> dict[str, Any]:
        key = f"{self.rank}/{self.number}"
        self.store.set(key, str(folder.absolute()))
        while not self.store.check([f"{key}/ended"]):
            if self.killed:
                raise OSError(f"process {self.rank} of the job does not answer")
            time.sleep(LOOK)
        self.number += 1
        return json.loads(self.store.get(f"{key}/ended"))

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.store.set(f"{self.rank}/{self.number}/interrupt", str(int(number)))
        self.killed = number == signal.SIGKILL

    def close(self) -> None:
        self.store.set(f"{self.rank}/{self.number}", "")


def places(modules: Sequence[str | Path] = ()) -> list[Worker]:
    """One in each process of the job, this one included; the others must `serve`."""
    store = _store()
    return [_own(modules), *(Distant(store, rank) for rank in range(1, processes()))]


def serve(modules: Sequence[str | Path] = (), store: Any = None, rank: int | None = None) -> None:
    """Trains in the folders that the first process names, until it names no more."""
    store = _store() if store is None else store
    rank = int(os.environ["RANK"]) if rank is None else rank
    own, number = _own(modules), FIRST
    try:
        while folder := _asked(store, f"{rank}/{number}"):
            _train(own, Path(folder), store, f"{rank}/{number}")
            number += 1
    finally:
        own.close()


def _asked(store: Any, key: str) -> str:
    while not store.check([key]):
        time.sleep(LOOK)
    return store.get(key).decode()


def _train(own: Launcher, folder: Path, store: Any, key: str) -> None:
    """Says at last how it ended; meanwhile interrupts are passed on, those of the first process and those of this."""
    ended: dict[str, Any] = {"code": 1}

    def train() -> None:
        try:
            ended.update(own.train(folder))
        except OSError as error:
            ended["problem"] = str(error)

    thread, told = Thread(target=train), ""
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK)
            if store.check([f"{key}/interrupt"]) and told != (told := store.get(f"{key}/interrupt").decode()):
                own.interrupt(int(told))
    except BaseException:
        own.interrupt()
        thread.join()
        raise
    finally:
        store.set(f"{key}/ended", json.dumps(ended))


def _own(modules: Sequence[str | Path]) -> Launcher:
    import torch

    return BEST(own_share(int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()), modules)


def _store() -> Any:
    import torch.distributed as dist

    store, _, _ = next(dist.rendezvous("env://"))
    # torchrun keeps its store over restarts; what was asked for before is not asked for now
    return dist.PrefixStore(f"race {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
