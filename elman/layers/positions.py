"""Position embeddings added to the input, for layers that are insensitive to order."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS, ParallelLayer
from elman.ops.positions import sinusoids
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence


@LAYERS.register("positions")
class Positions(ParallelLayer):
    """Adds a position embedding to each token."""

    traits: ClassVar = Traits(
        idea="adds a position embedding to each token, for layers that are insensitive to order",
        limitation="learned positions wrap around after `context`; sinusoids are unlimited",
        training="0; learned; 2·width for sinusoids",
        stepping="0; learned; 2·width for sinusoids",
        state="1",
    )
    wrapped: ClassVar = False  # no norm and residual connection around it
    sites: ClassVar = {"position": "position embedding (p)"}

    class Config(settings.Config):
        kind: Literal["learned", "sinusoidal"] = "learned"
        """Learned table, or sinusoidal positions."""
        context: int = Field(1024, ge=1)
        """Size of the table of learned positions; longer sequences wrap around."""
        scale: float = Field(0.0, ge=0)
        """Amplitude of the sinusoids, or initial scale of learned vectors; 0: 1 / √width, which fits word embeddings of
        length one."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        scale = config.scale or input_size**-0.5
        if config.kind == "learned":
            self.table = nn.Embedding(config.context, input_size)
            nn.init.normal_(self.table.weight, std=scale)
        # a buffer, because the layer may have no parameters but needs a device
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        self.scale: Tensor

    def initial_state(self, batch: int) -> Tensor:
        """The number of tokens seen by each row: zero."""
        return torch.zeros(batch, dtype=torch.long, device=self.scale.device)

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        places = state.unsqueeze(1) + torch.arange(x.shape[1], device=state.device)
        if self.config.kind == "learned":
            vectors = self.table(places % self.config.context)
        else:
            vectors = (sinusoids(places, self.input_size) * self.scale).to(x.dtype)
        return x + tap("position", vectors), state + (x.shape[1] if lengths is None else lengths.to(state.device))
