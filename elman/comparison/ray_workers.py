"""Workers on a Ray cluster whose nodes share the race's folder: one per accelerator if there are any, else per core."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elman.comparison.workers import LocalWorker, Worker
from elman.ray_cluster import accelerators, connect, cores

ANSWER = 5.0  # seconds for a node to answer


class RayWorker:
    """A worker in a Ray actor; if its node is lost, Ray restarts it on another."""

    def __init__(self, ray: Any, actor: Any):
        self.ray, self.actor = ray, actor

    def train(self, folder: Path) -> dict[str, Any]:
        try:
            return self.ray.get(self.actor.train.remote(folder.absolute()))
        except self.ray.exceptions.RayError as error:
            raise OSError(f"its place on the cluster was lost: {str(error).strip().splitlines()[0]}") from None

    def interrupt(self, number: int = signal.SIGINT) -> None:
        sent = self.actor.interrupt.remote(number)
        if number == signal.SIGKILL:  # also an actor that was never scheduled
            self.ray.wait([sent], timeout=ANSWER)
            self.ray.kill(self.actor)

    def close(self) -> None:
        self.actor.close.remote()


def places(
    address: str, workers: int = 0, modules: Sequence[str | Path] = (), accelerated: bool = True
) -> list[Worker]:
    """One worker per accelerator, or core, of the cluster at `address`; `local` starts a cluster on this machine."""
    ray = connect(address, "racing over a cluster of Ray", workers)
    gpus = accelerators(ray) if accelerated else 0
    # Two calls at a time: `interrupt` must run while `train` waits.
    options = {"num_cpus": 1, "num_gpus": bool(gpus), "max_concurrency": 2, "max_restarts": -1}
    actor = ray.remote(LocalWorker).options(scheduling_strategy="SPREAD", **options)
    count = workers or gpus or cores(ray)
    files = [Path(one).absolute() for one in modules]  # nodes have other working directories
    return [RayWorker(ray, actor.remote({"OMP_NUM_THREADS": "1"}, files)) for _ in range(count)]
