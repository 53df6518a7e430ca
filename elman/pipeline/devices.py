"""Device and number of CPU threads."""

import torch

from elman.errors import ConfigError
from elman.pipeline.recipe import Recipe

SMALL = 320  # width up to which recurrent models are fastest with one thread


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device: {name!r} is none of auto, cpu, cuda, mps")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: cuda was asked for, but torch sees none here; use --device cpu or auto")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: mps was asked for, but torch sees none here; use --device cpu or auto")
    if name == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(name)


def choose_threads(recipe: Recipe, device: torch.device) -> None:
    """By a fixed rule, not by measuring: a resumed run must use the same number, whatever ran before in the process."""
    small = device.type == "cpu" and getattr(recipe.model, "hidden_size", SMALL + 1) <= SMALL
    _threads.choose(recipe.threads or int(small))


class _Threads:
    """The number that the process had, or got since from others, comes back where none is chosen."""

    usual = chosen = 0

    def choose(self, number: int) -> None:
        now = torch.get_num_threads()
        if now != self.chosen:
            self.usual = now
        self.chosen = number or self.usual
        torch.set_num_threads(self.chosen)


_threads = _Threads()
