"""Several processes as one: started by torchrun, each takes every world-th row of the global batch.

    torchrun --nproc-per-node 2 -m -- elman train recipe.yaml --run runs/two --resume

(The lone -- keeps torchrun from taking --run for one of its own options.) With --max-restarts, a job that loses a
process goes on from the last checkpoint. Gradients travel over NCCL or gloo, decisions and files over gloo.

Who listens where, as found with torch 2.13: the workers' gloo sockets on the interface that the machine's name resolves
to, so where all processes are on one machine they are told to use loopback. torchrun's own meeting point listens on all
interfaces, whatever --rdzv-endpoint or --master-addr say: keep it behind a firewall.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from elman.errors import TrainingError

LOST = timedelta(minutes=2)  # an update that takes longer has lost a peer
PATIENCE = timedelta(
    days=1
)  # the leader may prepare or validate for long; should it die, the closed line tells at once

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1
    control: Any = None  # the group for decisions and files

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def from_leader(self, value: float) -> float:
        """The leader's number, on every process: so that all take the same decision."""
        if self.size == 1:
            return value
        box = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(box, src=0, group=self.control)
        return float(box.item())

    def any(self, flag: bool) -> bool:
        """Whether it is so for some process."""
        if self.size == 1:
            return flag
        box = torch.tensor([int(flag)])
        dist.all_reduce(box, group=self.control)
        return bool(box.item())

    def lead(self, work: Callable[[], Result]) -> Result | None:
        """The leader does it while the others wait; where it fails, all fail. Its result, for the leader."""
        result, failed = None, True
        try:
            if self.leads:
                result, failed = work(), False
        finally:
            failed = bool(self.from_leader(failed))
        if failed:
            raise TrainingError("the first process failed, and says why")
        return result

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """Everyone does it, the leader alone at first: the others find what it left on the disk."""
        result = self.lead(work)
        return work() if result is None else result

    def gather(self, data: bytes) -> list[bytes]:
        """Every process's bytes, in order of rank."""
        if self.size == 1:
            return [data]
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self.control)
        longest = int(max(size.item() for size in sizes))
        padded = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded, group=self.control)
        return [part.numpy()[: int(size)].tobytes() for part, size in zip(parts, sizes, strict=True)]

    def gather_tensors(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Every process's tensors, named `process.<rank>.<name>`."""
        if self.size == 1:
            return {f"process.0.{name}": value for name, value in own.items()}
        everyone = self.gather(save({name: value.detach().cpu().contiguous() for name, value in own.items()}))
        return {
            f"process.{rank}.{name}": value for rank, data in enumerate(everyone) for name, value in load(data).items()
        }


@contextmanager
def joined() -> Iterator[World]:
    """The world that torchrun set up, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or not dist.is_available():
        yield World()
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store, rank, size = next(dist.rendezvous("env://", timeout=LOST))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):  # all on this machine
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # torchrun keeps its store over restarts, and a new process must not call at the address of a dead one.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LOST)
    try:
        yield World(rank, size, dist.new_group(backend="gloo", timeout=PATIENCE))
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise TrainingError(
                "another process of the job is gone; with --resume it goes on from the last checkpoint"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
