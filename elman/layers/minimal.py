"""Minimal recurrent layers (Feng et al., 2024): gates depend on the input only, so time is one parallel scan."""

from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from elman.layers.base import LAYERS, ScanLayer
from elman.ops.scan import linear_scan
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

EXACT = 40.0  # above it, softplus(x) == x in float64


class Minimal(ScanLayer):
    """h' = keep · h + (1 - keep) · candidate, where keep and candidate are functions of the input."""

    class Config(ScanLayer.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0: the model's hidden_size."""
        bias: bool = True
        """Use bias vectors."""

    parts: ClassVar[int]

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, self.parts * self.output_size, bias=config.bias)

    @abstractmethod
    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Decay and increment of each unit; any leading dimensions."""

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.output_size)

    def parallel(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        history, final = linear_scan(*self.transition(x), state, lengths)
        return tap("hidden", history), final

    walk = parallel

    def advance(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        keep, new = self.transition(x)
        state = keep * state + new
        return tap("hidden", state), state


@LAYERS.register("mingru")
class MinGRU(Minimal):
    """minGRU (Feng et al., 2024): an update gate without recurrent input, trained by parallel scan."""

    traits: ClassVar = Traits(
        idea="gates do not depend on the state, so the recurrence is linear and time is one parallel scan",
        limitation="gates do not see the memory; no depth tracks parity at any length (Grazzi et al., 2024)",
        training="3·stepping; all positions at once",
        stepping="2·width·(input + 1)",
        state="width",
    )
    sites: ClassVar = {
        "gate.update": "share of the state that is kept (1 - z in the paper)",
        "candidate": "proposed new state (h̃)",
        "hidden": "the state, and the output (h)",
    }
    parts = 2

    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        update, candidate = self.from_input(x).chunk(2, dim=-1)
        update = tap("gate.update", torch.sigmoid(update))
        return update, (1 - update) * tap("candidate", candidate)


@LAYERS.register("minlstm")
class MinLSTM(Minimal):
    """minLSTM (Feng et al., 2024): forget and input gates without recurrent input, normalized to sum to one."""

    traits: ClassVar = Traits(
        idea="minGRU with forget and input gates normalized by their sum, so that the state keeps its scale",
        limitation="gates do not see the memory; no depth tracks parity at any length (Grazzi et al., 2024)",
        training="3·stepping; all positions at once",
        stepping="width·(3·input + 2)",
        state="width",
    )
    sites: ClassVar = {
        "gate.forget": "normalized forget gate (f')",
        "gate.input": "normalized input gate (i')",
        "candidate": "proposed new state (h̃)",
        "hidden": "the state, and the output (h)",
    }
    parts = 3

    class Config(Minimal.Config):
        forget_bias: float = 1.0
        """Added to the initial bias of the forget gate: values above 0 keep the state at first."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        if config.bias:
            with torch.no_grad():
                self.from_input.bias[: self.output_size] += config.forget_bias

    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keep, write, candidate = self.from_input(x).chunk(3, dim=-1)
        # log f/i without underflow; softplus is -log sigmoid, without logsigmoid's copies
        odds = F.softplus(-write, threshold=EXACT) - F.softplus(-keep, threshold=EXACT)
        share = torch.sigmoid(odds)  # f / (f + i)
        keep, write = tap("gate.forget", share), tap("gate.input", 1 - share)
        return keep, write * tap("candidate", candidate)
