"""Minimal recurrent layers (Feng et al., 2024): gates see the input alone, so all of time is one parallel scan."""

from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops import taps
from elman.ops.scan import explain, linear_scan
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

EXACT = 40.0  # from here on softplus(x) is x, to the last digit of float64


class Minimal(SequenceLayer):
    """h' = keep · h + (1 - keep) · candidate, keep and candidate being functions of the input."""

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0 takes the model's hidden_size."""
        bias: bool = True
        """Whether the equations have bias vectors."""

    parts: ClassVar[int]

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, config.hidden_size or input_size
        self.from_input = nn.Linear(input_size, self.parts * self.output_size, bias=config.bias)

    @abstractmethod
    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of each unit, and what is added to it; any leading axes."""

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.output_size)

    def forward(
        self, x: Sequence, state: Tensor | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, Tensor]:
        state = self.initial_state(len(x)) if state is None else state
        history, final = linear_scan(*self.transition(x), state, lengths)
        return tap("hidden", history), final

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """Which form of the scan a whole sequence would take, and why; rows of unequal length change nothing."""
        return explain(self.from_input.weight.new_empty(batch, time, self.output_size))

    def step(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        with taps.stepping():
            keep, new = self.transition(x)
            state = keep * state + new
            return tap("hidden", state), state


@LAYERS.register("mingru")
class MinGRU(Minimal):
    """minGRU (Feng et al., 2024): an update gate that does not see the past, trained by parallel scan."""

    traits: ClassVar = Traits(
        idea="without the past in its gate the state is linear in itself, so all of time is one parallel scan",
        limitation="no gate decides by what is remembered; no depth tracks parity at any length (Grazzi et al., 2024)",
        training="3·stepping; all positions at once",
        stepping="2·width·(input + 1)",
        state="width",
    )
    sites: ClassVar = {
        "gate.update": "share of the state that is kept (1 - z in the paper)",
        "candidate": "proposed new state (h̃)",
        "hidden": "the state as it is shown: the output (h)",
    }
    parts = 2

    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        update, candidate = self.from_input(x).chunk(2, dim=-1)
        update = tap("gate.update", torch.sigmoid(update))
        return update, (1 - update) * tap("candidate", candidate)


@LAYERS.register("minlstm")
class MinLSTM(Minimal):
    """minLSTM (Feng et al., 2024): forget and input gate that do not see the past and share one whole."""

    traits: ClassVar = Traits(
        idea="as minGRU, with two gates divided by their sum, so that the state keeps its scale at any length",
        limitation="no gate decides by what is remembered; no depth tracks parity at any length (Grazzi et al., 2024)",
        training="3·stepping; all positions at once",
        stepping="width·(3·input + 2)",
        state="width",
    )
    sites: ClassVar = {
        "gate.forget": "share of the state that is kept, after division (f')",
        "gate.input": "share of the candidate that is written, after division (i')",
        "candidate": "proposed new state (h̃)",
        "hidden": "the state as it is shown: the output (h)",
    }
    parts = 3

    class Config(Minimal.Config):
        forget_bias: float = 1.0
        """Added to the forget gate's bias at the start: above 0 the state is kept until something is learned."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        if config.bias:
            with torch.no_grad():
                self.from_input.bias[: self.output_size] += config.forget_bias

    def transition(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keep, write, candidate = self.from_input(x).chunk(3, dim=-1)
        # log f/i, also where both are too small to divide; softplus is -log of a sigmoid, without logsigmoid's copies
        odds = F.softplus(-write, threshold=EXACT) - F.softplus(-keep, threshold=EXACT)
        share = torch.sigmoid(odds)  # f / (f + i)
        keep, write = tap("gate.forget", share), tap("gate.input", 1 - share)
        return keep, write * tap("candidate", candidate)
