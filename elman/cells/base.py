"""The recurrent cell: its equations, split into input projection and recurrent step; and its recurrent matrices."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.compiler.cell_program import first_parameter
from elman.errors import ConfigError
from elman.recurrence.vendor import VendorCall
from elman.registry import Registry, SuggestedRate, Traits
from elman.shapes import State, Step


class PastProduct(nn.Linear):
    """The recurrent matrix: `parts` square blocks without bias, with weight dropout per sequence."""

    def __init__(self, size: int, parts: int):
        super().__init__(size, parts * size, bias=False)
        self.thinned: Tensor | None = None

    @property
    def weight_in_use(self) -> Tensor:
        """The weight read by every form of the recurrence, so that all drop the same weights."""
        return self.weight if self.thinned is None else self.thinned

    def forward(self, past: Tensor) -> Tensor:
        return F.linear(past.to(self.weight.dtype), self.weight_in_use)

    @contextmanager
    def dropping(self, share: float) -> Iterator[None]:
        """Context in which a `share` of the weights is zero and the rest is scaled up."""
        self.thinned = F.dropout(self.weight, share)
        try:
            yield
        finally:
            self.thinned = None


class Antisymmetric(PastProduct):
    """A square recurrent matrix M - Mᵀ - damping·I: rotates and damps the state, and cannot make it grow."""

    def __init__(self, size: int, damping: float):
        super().__init__(size, parts=1)
        self.damping = damping

    def forward(self, past: Tensor) -> Tensor:
        past = past.to(self.weight.dtype)
        return F.linear(past, self.weight_in_use) - past @ self.weight_in_use - self.damping * past


@torch.no_grad()
def start(cell: nn.Module, size: int, orthogonal: bool) -> None:
    """Initialization: uniform within 1/sqrt(size) as in torch, optionally orthogonal square blocks."""
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)
    if orthogonal:
        for module in cell.modules():
            if isinstance(module, PastProduct):
                for block in module.weight.split(size):
                    nn.init.orthogonal_(block)


class Cell(nn.Module, ABC):
    """Constructed as `Cell(config, input_size)`. `drive` is the time-independent input projection, `step` the
    recurrence."""

    name: ClassVar[str]
    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol: {"gate.forget": "share of the memory kept (f)"}."""
    traits: ClassVar[Traits | None] = None
    """Core idea, limitation and costs; every cell of this package has them."""
    suggested_rate: ClassVar[SuggestedRate] = SuggestedRate(0.512)
    """Suggested learning rate if the recipe sets none."""

    input_size: int
    hidden_size: int

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0: the model's hidden_size."""
        bias: bool = True
        """Use bias vectors."""
        orthogonal: bool = False
        """Orthogonal instead of uniform initialization of recurrent matrices."""
        weight_dropout: float = Field(0.0, ge=0, lt=1)
        """Weight dropout (DropConnect) on recurrent weights, with one mask per sequence."""

    def __init__(self, config: "Cell.Config", input_size: int):
        super().__init__()
        self.config = config
        self.input_size = input_size
        self.hidden_size = config.hidden_size or input_size

    def initial_state(self, batch: int) -> State:
        """The state before the first token; zeros by default."""
        return self.zeros(batch)

    @abstractmethod
    def drive(self, x: Tensor) -> Tensor:
        """The input projection; any leading dimensions, so a whole sequence is one matrix product."""

    @abstractmethod
    def step(self, drive: Tensor, state: State) -> tuple[Step, State]:
        """One step from the projected input and the state to the output (batch, hidden_size) and the new state."""

    def vendor(self) -> VendorCall | str:
        """How torch's own kernels compute this cell, or the reason why they cannot."""
        return f"{self.name} has no vendor kernel"

    def zeros(self, batch: int) -> Tensor:
        """A part of an initial state, in at least float32: bfloat16 would lose small updates of a large state."""
        weight = first_parameter(self)
        dtype = weight.dtype if weight.dtype.itemsize >= 4 else torch.float32
        return weight.new_zeros(batch, self.hidden_size, dtype=dtype)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Applies `weight_dropout` to the recurrent weights for one training forward pass over a sequence."""
        with ExitStack() as stack:
            if self.training and self.config.weight_dropout:
                products = [module for module in self.modules() if isinstance(module, PastProduct)]
                if not products:
                    raise ConfigError(f"weight_dropout: cell {self.name!r} has no PastProduct to drop weights of")
                for product in products:
                    stack.enter_context(product.dropping(self.config.weight_dropout))
            yield


class BlockCell(Cell):
    """A cell with one product of the input and one of the past state, each of a matrix with `blocks` blocks of
    hidden_size rows: one for each gate and candidate."""

    blocks: ClassVar[int]

    def __init__(self, config: Cell.Config, input_size: int, input_bias: bool = True):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, self.blocks * size, bias=config.bias and input_bias)
        self.from_past = PastProduct(size, self.blocks)
        start(self, size, config.orthogonal)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)


CELLS: Registry[Cell] = Registry("cell")
