"""Recurrent cells: the equations of one step, split into what depends on the input alone and the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.cells.products import PastProduct
from elman.compiler.cell_program import first_parameter
from elman.errors import ConfigError
from elman.recurrence.vendor import VendorCall
from elman.registry import Pace, Registry, Traits
from elman.shapes import State, Step

Registered = TypeVar("Registered", bound=type)


class Cell(nn.Module, ABC):
    """Base class of recurrent cells: `drive` projects all inputs at once, `step` computes one time step.

    Constructed as `Cell(config, input_size)`. A registered cell is also a layer of the same name.
    """

    name: ClassVar[str]
    sites: ClassVar[dict[str, str]] = {}
    """Tapped quantities with meaning and symbol: {"gate.forget": "share of the memory kept (f)"}."""
    traits: ClassVar[Traits | None] = None
    """Core idea, limitation and cost formulas; required for built-in cells."""
    pace: ClassVar[Pace] = Pace(0.512)
    """Suggested learning rate and warm-up, used where a recipe sets none."""

    input_size: int
    hidden_size: int

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0 takes the model's hidden_size."""
        bias: bool = True
        """Whether the equations have bias vectors."""
        orthogonal: bool = False
        """Start the recurrent matrices orthogonal (they keep the length of the state) instead of uniform."""
        weight_dropout: float = Field(0.0, ge=0, lt=1)
        """Share of the recurrent weights left out in training, the same ones for a whole sequence (DropConnect)."""

    def __init__(self, config: "Cell.Config", input_size: int):
        super().__init__()
        self.config = config
        self.input_size = input_size
        self.hidden_size = config.hidden_size or input_size

    def initial_state(self, batch: int) -> State:
        """The state before the first token: zeros, unless the cell overrides it."""
        return self.zeros(batch)

    @abstractmethod
    def drive(self, x: Tensor) -> Tensor:
        """Input projection: everything that depends on the input alone, in one matrix product for a whole sequence.

        `x` may have any leading axes.
        """

    @abstractmethod
    def step(self, drive: Tensor, state: State) -> tuple[Step, State]:
        """One time step: output (batch, hidden_size) and next state, from the projected input and the state."""

    def vendor(self) -> VendorCall | str:
        """How a kernel of torch (cuDNN, oneDNN) computes this cell, or the reason why none does."""
        return f"{self.name} has no vendor kernel"

    def zeros(self, batch: int) -> Tensor:
        """A zero state tensor in at least float32: bfloat16 would lose small updates to a large state."""
        weight = first_parameter(self)
        kind = weight.dtype if weight.dtype.itemsize >= 4 else torch.float32
        return weight.new_zeros(batch, self.hidden_size, dtype=kind)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Context of one forward pass in training: recurrent weights with `weight_dropout` applied."""
        with ExitStack() as stack:
            if self.training and self.config.weight_dropout:
                products = [module for module in self.modules() if isinstance(module, PastProduct)]
                if not products:
                    raise ConfigError(f"weight_dropout: cell {self.name!r} has no PastProduct, whose weights it drops")
                for product in products:
                    stack.enter_context(product.dropping(self.config.weight_dropout))
            yield


class CellRegistry(Registry[Cell]):
    """Cells by name; followers hear of every cell, also of those that come later."""

    def __init__(self) -> None:
        super().__init__("cell")
        self._followers: list[Callable[[str, type[Cell]], None]] = []

    def register(self, name: str) -> Callable[[Registered], Registered]:
        add = super().register(name)

        def add_and_tell(cell: Registered) -> Registered:
            add(cell)
            for follower in self._followers:
                follower(name, cell)
            return cell

        return add_and_tell

    def follow(self, follower: Callable[[str, type[Cell]], None]) -> None:
        for name in self:
            follower(name, self[name])
        self._followers.append(follower)


CELLS = CellRegistry()
