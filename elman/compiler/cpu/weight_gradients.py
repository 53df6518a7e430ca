"""Gradients of input and matrices: products over all rows of all steps at once, none in the walk through time."""

import torch
from torch import Tensor

from elman.compiler.cpu.memory_layout import Plan
from elman.compiler.cpu.small_matmul import ADDED, FRESH, multiply, small

Found = list[Tensor | None]


class Past:
    """What forward `kept` of each step, what backward has `written` for it, and which gradients are asked for."""

    def __init__(self, made: Plan, kept: Tensor, written: Tensor):
        self.made, self.kept, self.written = made, kept, written
        batch, time, self.wide = written.shape
        self.rows, self.size, self.width = batch * time, made.step.size, self.wide - made.d_drive

    def gradients(
        self, x: Tensor, matrix: Tensor, weights: list[Tensor], needed: tuple[bool, ...]
    ) -> tuple[Found, Found]:
        """Of input, its matrix and its bias; of matrices among weights, by the plan's names."""
        if small(x, self.rows, max(x.shape[2], self.size), self.width):
            return self._small(x, matrix, weights, needed)
        return self.of_input(x, matrix, needed), self.of_weights(weights, needed[3:])

    def of_input(self, x: Tensor, matrix: Tensor, needed: tuple[bool, ...]) -> Found:
        d_drive = _columns(self.written.view(self.rows, -1), self.made.d_drive, self.width)
        d_x = torch.mm(d_drive, matrix).view(x.shape) if needed[0] else None
        d_matrix = torch.mm(d_drive.t(), x.reshape(self.rows, -1)) if needed[1] else None
        return [d_x, d_matrix, d_drive.sum(0) if needed[2] else None]

    def of_weights(self, weights: list[Tensor], needed: tuple[bool, ...]) -> Found:
        size, written, kept = self.size, self.written.view(self.rows, -1), self.kept.view(self.rows, -1)
        found: Found = [None] * len(weights)
        for number, row, column, count, flipped, start, place in self.made.gradients:
            if not needed[number]:
                continue
            adjoint, value = _columns(written, start, count * size), _columns(kept, place, size)
            factors = (value.t(), adjoint) if flipped else (adjoint.t(), value)
            gradient = found[number]
            if gradient is None and weights[number].numel() == count * size**2:
                found[number] = torch.mm(*factors)
                continue
            if gradient is None:
                found[number] = gradient = torch.zeros_like(weights[number])
            gradient.narrow(0, row * size, count * size).narrow(1, column * size, size).addmm_(*factors)
        return found

    def _small(self, x: Tensor, matrix: Tensor, weights: list[Tensor], needed: tuple[bool, ...]) -> tuple[Found, Found]:
        """The same by our C++."""
        rows, size, wide, width, inputs, one = self.rows, self.size, self.wide, self.width, x.shape[2], x.element_size()
        written, kept, record = self.written.data_ptr(), self.kept.data_ptr(), self.made.record
        d_drive = written + self.made.d_drive * one
        of_input: Found = [None, None, None]
        jobs: list[int] = []
        if needed[0]:
            of_input[0] = d_x = torch.empty_like(x)
            jobs += d_drive, wide, 1, rows, matrix.data_ptr(), inputs, 1, inputs, width, d_x.data_ptr(), inputs, FRESH
        if needed[1]:
            of_input[1] = found = torch.empty_like(matrix)
            jobs += d_drive, 1, wide, width, x.data_ptr(), inputs, 1, inputs, rows, found.data_ptr(), inputs, FRESH
        if needed[2]:
            of_input[2] = found = x.new_empty(width)
            jobs += 0, 0, 0, 1, d_drive, wide, 1, width, rows, found.data_ptr(), width, FRESH
        of_weights: Found = [None] * len(weights)
        for number, row, column, count, flipped, start, place in self.made.gradients:
            if not needed[3 + number]:
                continue
            gradient, before = of_weights[number], ADDED
            if gradient is None and weights[number].numel() == count * size**2:
                of_weights[number] = gradient = torch.empty_like(weights[number])
                before = FRESH
            elif gradient is None:
                of_weights[number] = gradient = torch.zeros_like(weights[number])
            below = gradient.shape[1]
            to = gradient.data_ptr() + (row * below + column) * size * one
            adjoint, value = written + start * one, kept + place * one
            if flipped:
                jobs += value, 1, record, size, adjoint, wide, 1, size, rows, to, below, before
            else:
                jobs += adjoint, 1, wide, count * size, value, record, 1, size, rows, to, below, before
        multiply(jobs, x.dtype)
        return of_input, of_weights


def _columns(matrix: Tensor, start: int, count: int) -> Tensor:
    """Some of them; torch takes long to find that they are all."""
    return matrix if count == matrix.shape[1] else matrix.narrow(1, start, count)
