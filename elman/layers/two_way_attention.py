"""Bidirectional self-attention: every position attends to its whole row (Vaswani et al., 2017, the encoder)."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from elman.layers.base import LAYERS, TwoWayLayer
from elman.layers.heads import HeadedLayer, HeadsConfig
from elman.ops.attention import attend_both_ways
from elman.registry import Pace, Traits
from elman.shapes import Lengths, Sequence


@LAYERS.register("two-way-attention")
class TwoWayAttention(HeadedLayer, TwoWayLayer):
    """Bidirectional multi-head self-attention.

    A window limits what a position sees, but not the cost.
    """

    traits: ClassVar = Traits(
        idea="every position attends to its whole row, before and after it",
        limitation="needs the whole text: no step form; insensitive to order without positions",
        training="6·head_size·(width·(heads + kv_heads) + heads·length); all positions at once",
        stepping="none; it has no step form",
        state="0",
    )
    pace: ClassVar = Pace(0.128, warmup=100)
    sites: ClassVar = {
        **HeadedLayer.sites,
        "scores": "attention scores: (time, heads, time), -inf where masked",
        "weights": "attention weights, laid out like the scores (α)",
    }

    class Config(HeadsConfig):
        window: int = Field(0, ge=0)
        """Positions that a token can attend to on each side, including itself; 0: all."""

    config: Config

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, dtype=self.slopes.dtype, device=self.slopes.device)

    def forward(
        self, x: Sequence, state: Tensor | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, Tensor]:
        state = self.initial_state(len(x)) if state is None else state
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.output_size), state
        query, key, value = self.project(x, torch.zeros(1, dtype=torch.long, device=x.device))
        read = attend_both_ways(
            query,
            key,
            value,
            self.score,
            lengths=lengths,
            reach=self.config.window,
            slopes=self.by_distance,
            dropout=self.dropped,
        )
        return self.join(read), state
