"""Data-parallel training: processes started by torchrun, each takes every world-th row of the global batch.

    torchrun --nproc-per-node 2 -m -- elman train recipe.yaml --run runs/two --resume

(The separate -- keeps torchrun from parsing --run as its own option.) With --max-restarts, a job that loses a process
resumes from the last checkpoint. Gradients use NCCL or gloo; control messages and files use gloo. A process that gives
no answer in time (`rank_seconds` of elman.limits) ends the job.

Open ports (torch 2.13): gloo sockets bind to the interface of the host name; if all processes run on one machine, they
bind to loopback instead. torchrun's rendezvous listens on all interfaces, whatever --rdzv-endpoint or --master-addr
say: keep it behind a firewall.
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
from elman.limits import limits
from elman.processes import end_with_parent, under_torchrun

START = timedelta(minutes=2)  # the least that processes wait for each other at the start
LEADER_PATIENCE = 30  # times limits().rank_seconds: how long others wait while rank 0 prepares, validates or saves

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """Rank of this process, world size, and collectives for control decisions."""

    rank: int = 0
    size: int = 1
    control: Any = None  # gloo process group for what all processes do at once
    patient: Any = None  # one with a longer timeout: others wait while rank 0 works

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """All-reduce: the sum over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def from_leader(self, value: float, patient: bool = False) -> float:
        """Broadcast from rank 0, so that all processes take the same decision. `patient`: rank 0 works before."""
        if self.size == 1:
            return value
        box = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(box, src=0, group=self.patient if patient else self.control)
        return float(box.item())

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        box = torch.tensor([int(flag)])
        dist.all_reduce(box, group=self.control)
        return bool(box.item())

    def lead(self, work: Callable[[], Result]) -> Result | None:
        """Run `work` on rank 0 while the others wait; if it fails, all fail. Returns its result on rank 0 only."""
        result, failed = None, True
        try:
            if self.leads:
                result, failed = work(), False
        finally:
            failed = bool(self.from_leader(failed, patient=True))
        if failed:
            raise TrainingError("rank 0 failed; its error message has the reason")
        return result

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """Run `work` on rank 0 first, then on the others, which find its files on disk."""
        result = self.lead(work)
        return work() if result is None else result

    def gather(self, data: bytes) -> list[bytes]:
        """All-gather of bytes, in order of rank."""
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
        """All-gather of tensors, named `process.<rank>.<name>`."""
        if self.size == 1:
            return {f"process.0.{name}": value for name, value in own.items()}
        everyone = self.gather(save({name: value.detach().cpu().contiguous() for name, value in own.items()}))
        return {
            f"process.{rank}.{name}": value for rank, data in enumerate(everyone) for name, value in load(data).items()
        }


@contextmanager
def joined() -> Iterator[World]:
    """The process group that torchrun set up, or a world of size 1."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if under_torchrun():
        end_with_parent()
    if size == 1 or not dist.is_available():
        yield World()
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    wait = timedelta(seconds=limits().rank_seconds)
    try:
        yield _join(backend, wait)
    except RuntimeError as error:
        if "imed out" in str(error):
            raise TrainingError(
                "another process of the job gave no answer in time: it was stopped, is overloaded or is cut off. Start "
                "the job again with --resume to continue from the last checkpoint; to wait longer than "
                f"{limits().rank_seconds} seconds in a step, set ELMAN_LIMITS=rank_seconds=600"
            ) from error
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise TrainingError(
                "lost another process of the job; start it again with --resume to continue from the last checkpoint"
            ) from error
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _join(backend: str, wait: timedelta) -> World:
    store, rank, size = next(dist.rendezvous("env://", timeout=max(START, wait)))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):  # all on this machine
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # torchrun keeps its store across restarts: without a prefix, new processes would find addresses of dead ones.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
    groups = (dist.new_group(backend="gloo", timeout=timeout) for timeout in (wait, LEADER_PATIENCE * wait))
    return World(rank, size, *groups)
