"""Layers whose state is their last few inputs."""

from abc import abstractmethod

import torch
from torch import Tensor

from elman.layers.base import SequenceLayer
from elman.ops.taps import stepping
from elman.shapes import Lengths, Sequence, Step


class PastInputs(SequenceLayer):
    """`read` computes an output from its own input and the `reach` inputs before it, zero-padded at the start."""

    reach: int

    @abstractmethod
    def read(self, inputs: Tensor) -> Sequence:
        """From (batch, reach + time, input_size) to (batch, time, output_size), time ≥ 1."""

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.reach, self.input_size)

    def forward(
        self, x: Sequence, state: Tensor | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, Tensor]:
        state = self.initial_state(len(x)) if state is None else state
        time = x.shape[1]
        if time == 0:
            return x.new_zeros(len(x), 0, self.output_size), state
        inputs = torch.cat([state, x.to(state.dtype)], dim=1)
        outputs = self.read(inputs.to(next(self.parameters()).dtype))
        if lengths is None:
            return outputs, inputs[:, time:].clone()  # a view would keep the whole sequence in memory
        rows = torch.arange(len(x), device=x.device).unsqueeze(1)
        last = lengths.to(x.device).unsqueeze(1) + torch.arange(self.reach, device=x.device)
        return outputs, inputs[rows, last]

    def step(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        with stepping(False):
            outputs, state = self.forward(x.unsqueeze(1), state)
        return outputs.squeeze(1), state
