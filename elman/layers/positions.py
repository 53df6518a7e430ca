"""Positions added to the input, for layers that do not see order by themselves."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops.positions import sinusoids
from elman.ops.taps import stepping, tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step


@LAYERS.register("positions")
class Positions(SequenceLayer):
    """Adds to each token a vector that tells its place in the row."""

    traits: ClassVar = Traits(
        idea="adds to each token a vector that tells its place, for layers that do not see order",
        limitation="learned places begin again after `context` of them; sinusoids never end",
        training="0; learned; 2·width for sinusoids",
        stepping="0; learned; 2·width for sinusoids",
        state="1",
    )
    wrapped: ClassVar = False  # norm and shortcut are for what it is added to
    sites: ClassVar = {"position": "the vector added for the place (p)"}

    class Config(settings.Config):
        kind: Literal["learned", "sinusoidal"] = "learned"
        """A table of vectors, or sines and cosines of falling frequency."""
        context: int = Field(1024, ge=1)
        """Places in the table of learned positions; after the last comes the first again."""
        scale: float = Field(0.0, ge=0)
        """Size of the sinusoids, and of learned vectors at first; 0 takes 1 / √width, which fits word vectors of length
        one."""

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.config = config
        self.input_size = self.output_size = input_size
        scale = config.scale or input_size**-0.5
        if config.kind == "learned":
            self.table = nn.Embedding(config.context, input_size)
            nn.init.normal_(self.table.weight, std=scale)
        # tells the device of the layer, which may have no parameters
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        self.scale: Tensor

    def initial_state(self, batch: int) -> Tensor:
        """Tokens that each row has seen: none."""
        return torch.zeros(batch, dtype=torch.long, device=self.scale.device)

    def forward(
        self, x: Sequence, state: Tensor | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, Tensor]:
        state = self.initial_state(len(x)) if state is None else state
        places = state.unsqueeze(1) + torch.arange(x.shape[1], device=state.device)
        if self.config.kind == "learned":
            vectors = self.table(places % self.config.context)
        else:
            vectors = (sinusoids(places, self.input_size) * self.scale).to(x.dtype)
        return x + tap("position", vectors), state + (x.shape[1] if lengths is None else lengths.to(state.device))

    def step(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        with stepping(False):
            outputs, state = self.forward(x.unsqueeze(1), state)
        return outputs.squeeze(1), state
