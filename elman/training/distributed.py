"""Several processes as one: started by torchrun, each takes every world-th row of the global batch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1

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
        box = box.cuda() if dist.get_backend() == "nccl" else box
        dist.broadcast(box, src=0)
        return float(box.item())

    def gather(self, data: bytes) -> list[bytes]:
        """Every process's bytes, in order of rank."""
        if self.size == 1:
            return [data]
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(data)], device=device))
        longest = int(max(size.item() for size in sizes))
        padded = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8).to(device)
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return [bytes(part.cpu().numpy()[: int(size)]) for part, size in zip(parts, sizes, strict=True)]

    def gather_tensors(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Every process's tensors, named `process.<rank>.<name>`."""
        if self.size == 1:
            return {f"process.0.{name}": value for name, value in own.items()}
        everyone = self.gather(save({name: value.detach().cpu().contiguous() for name, value in own.items()}))
        return {f"process.{rank}.{name}": value for rank, data in enumerate(everyone) for name, value in load(data).items()}

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


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
    # A lost peer should end the run in minutes, not in the half hour that is the default.
    dist.init_process_group(backend, timeout=timedelta(seconds=120))
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
