"""Gradients of the input and of all matrices: GEMMs over all rows and steps, after backward has run through time."""

import torch
from torch import Tensor

from elman.compiler.cpu.memory_layout import SequencePlan
from elman.compiler.cpu.small_matmul import ACCUMULATE, OVERWRITE, is_small, run_gemms

Gradients = list[Tensor | None]


class WeightGradients:
    """From what forward `saved` of each step and the `adjoints` that backward wrote for it (B, T, record)."""

    def __init__(self, plan: SequencePlan, saved: Tensor, adjoints: Tensor):
        self.plan, self.saved, self.adjoints = plan, saved, adjoints
        batch, time, self.record = adjoints.shape
        self.rows, self.size, self.width = batch * time, plan.step.size, self.record - plan.d_drive

    def of_all(
        self, x: Tensor, weight: Tensor, weights: list[Tensor], needed: tuple[bool, ...]
    ) -> tuple[Gradients, Gradients]:
        """Of the input, the input projection's weight and bias; and of the matrices among `weights`."""
        if is_small(x, self.rows, max(x.shape[2], self.size), self.width):
            return self._small(x, weight, weights, needed)
        return self.of_input(x, weight, needed), self.of_weights(weights, needed[3:])

    def of_input(self, x: Tensor, weight: Tensor, needed: tuple[bool, ...]) -> Gradients:
        d_drive = _columns(self.adjoints.view(self.rows, -1), self.plan.d_drive, self.width)
        d_x = torch.mm(d_drive, weight).view(x.shape) if needed[0] else None
        d_weight = torch.mm(d_drive.t(), x.reshape(self.rows, -1)) if needed[1] else None
        return [d_x, d_weight, d_drive.sum(0) if needed[2] else None]

    def of_weights(self, weights: list[Tensor], needed: tuple[bool, ...]) -> Gradients:
        size, adjoints, saved = self.size, self.adjoints.view(self.rows, -1), self.saved.view(self.rows, -1)
        gradients: Gradients = [None] * len(weights)
        for n, row, column, count, flipped, adjoint_start, value_start in self.plan.matrix_gradients:
            if not needed[n]:
                continue
            adjoint, value = _columns(adjoints, adjoint_start, count * size), _columns(saved, value_start, size)
            factors = (value.t(), adjoint) if flipped else (adjoint.t(), value)
            gradient = gradients[n]
            if gradient is None and weights[n].numel() == count * size**2:
                gradients[n] = torch.mm(*factors)
                continue
            if gradient is None:
                gradients[n] = gradient = torch.zeros_like(weights[n])
            gradient.narrow(0, row * size, count * size).narrow(1, column * size, size).addmm_(*factors)
        return gradients

    def _small(
        self, x: Tensor, weight: Tensor, weights: list[Tensor], needed: tuple[bool, ...]
    ) -> tuple[Gradients, Gradients]:
        """The same as one batch of small GEMMs (`run_gemms`)."""
        rows, size, pitch, width = self.rows, self.size, self.record, self.width
        inputs, itemsize, record = x.shape[2], x.element_size(), self.plan.record
        adjoints, saved = self.adjoints.data_ptr(), self.saved.data_ptr()
        d_drive = adjoints + self.plan.d_drive * itemsize
        of_input: Gradients = [None, None, None]
        jobs: list[int] = []
        if needed[0]:
            of_input[0] = d_x = torch.empty_like(x)
            jobs += d_drive, pitch, 1, rows, weight.data_ptr(), inputs, 1, inputs, width
            jobs += d_x.data_ptr(), inputs, OVERWRITE
        if needed[1]:
            of_input[1] = d_weight = torch.empty_like(weight)
            jobs += d_drive, 1, pitch, width, x.data_ptr(), inputs, 1, inputs, rows
            jobs += d_weight.data_ptr(), inputs, OVERWRITE
        if needed[2]:
            of_input[2] = d_bias = x.new_empty(width)
            jobs += 0, 0, 0, 1, d_drive, pitch, 1, width, rows, d_bias.data_ptr(), width, OVERWRITE
        of_weights: Gradients = [None] * len(weights)
        for n, row, column, count, flipped, adjoint_start, value_start in self.plan.matrix_gradients:
            if not needed[3 + n]:
                continue
            gradient, mode = of_weights[n], ACCUMULATE
            if gradient is None and weights[n].numel() == count * size**2:
                of_weights[n] = gradient = torch.empty_like(weights[n])
                mode = OVERWRITE
            elif gradient is None:
                of_weights[n] = gradient = torch.zeros_like(weights[n])
            stride = gradient.shape[1]
            target = gradient.data_ptr() + (row * stride + column) * size * itemsize
            adjoint, value = adjoints + adjoint_start * itemsize, saved + value_start * itemsize
            if flipped:
                jobs += value, 1, record, size, adjoint, pitch, 1, size, rows, target, stride, mode
            else:
                jobs += adjoint, 1, pitch, count * size, value, record, 1, size, rows, target, stride, mode
        run_gemms(jobs, x.dtype)
        return of_input, of_weights


def _columns(matrix: Tensor, start: int, count: int) -> Tensor:
    """`matrix.narrow(1, start, count)`, which is slow even where it selects all columns."""
    return matrix if count == matrix.shape[1] else matrix.narrow(1, start, count)
