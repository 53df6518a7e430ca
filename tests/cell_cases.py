"""The cells that unit programs and kernels are tried on: all that are registered, and one that nobody wrote before."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elman.cells import CELLS, Cell, PastProduct


class Two(NamedTuple):
    fast: Tensor
    slow: Tensor


class Invented(Cell):
    """What the registered cells leave untried: a matrix from its other side, parts of a state joined, a mean of units,
    functions of vectors, a buffer, an output that is no part of the state."""

    name = "invented"

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, 2 * size)
        self.from_past = PastProduct(size, 1)
        self.both = nn.Parameter(torch.randn(2 * size, size) * size**-0.5)
        self.decay = nn.Parameter(torch.randn(size))
        self.register_buffer("gain", torch.linspace(0.5, 1.5, size))

    def initial_state(self, batch: int) -> Two:
        return Two(self.zeros(batch), self.zeros(batch))

    def drive(self, x: Tensor) -> Tensor:
        return F.silu(self.from_input(x))

    def step(self, drive: Tensor, state: Two) -> tuple[Tensor, Two]:
        write, show = drive.chunk(2, -1)
        keep = torch.exp(-F.softplus(self.decay))
        heard = torch.cat([state.fast, state.slow], -1) @ self.both
        slow = keep * state.slow + (1 - keep) * torch.sin(write + heard)
        centred = slow - slow.mean(-1, keepdim=True)
        fast = F.leaky_relu(self.from_past(centred * self.gain), 0.2).clamp(-2, 2) + 0.1 * state.fast.abs()
        return torch.where(show > 0, fast, slow) * torch.tanh(show), Two(fast, slow)


KNOWN = {**{name: CELLS[name] for name in CELLS}, Invented.name: Invented}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "rnn": [{}, {"nonlinearity": "relu"}],
    "gru": [{}, {"reset": "before"}, {"bias": False}],
    "peephole": [{}, {"form": "full"}],
    "layernorm-lstm": [{}, {"bias": False}],
}
CASES = [(name, settings) for name in KNOWN for settings in SETTINGS.get(name, [{}])]


def cell_of(case: str, settings: dict[str, Any] | None = None, hidden_size: int = 4, **more: Any) -> Cell:
    kind = KNOWN[case]
    return kind(kind.Config(hidden_size=hidden_size, **(settings or {}), **more), 3)


def parts_of(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)
