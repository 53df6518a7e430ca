"""What a recurrent cell is: the equation on the slide, split where the input ends and the past begins."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from elman.config import Config
from elman.registry import Registry
from elman.shapes import State, Step


class Cell(nn.Module, ABC):
    """Built as `Cell(config, input_size)`. `drive` is free of time; `step` is the only place that knows it."""

    name: ClassVar[str]
    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol: {"gate.forget": "share of the memory kept (f)"}."""

    input_size: int
    hidden_size: int

    class Config(Config):
        hidden_size: int = 0
        """Width of the state; 0 takes the model's hidden_size."""

    @abstractmethod
    def initial_state(self, batch: int) -> State:
        """The state before the first token: zeros, unless the cell says otherwise."""

    @abstractmethod
    def drive(self, x: Tensor) -> Tensor:
        """All that depends on the input alone; any leading axes, so a whole sequence takes one matrix product."""

    @abstractmethod
    def step(self, drive: Tensor, state: State) -> tuple[Step, State]:
        """One step from the driven input and the past to the output and the new state."""


CELLS: Registry[Cell] = Registry("cell")
