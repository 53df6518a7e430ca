"""The plan of a compiled sequence: IR, adjoint, machine code, and where each value lies in memory.

All that depends on the equations alone is computed here, once; a call only allocates tensors and runs the kernels.
Per row and step, forward saves a record and backward writes one (k, m, n: numbers of parts; H units):

    saved    [ saved and matmul-input values: k·H | ROW values, padded to 16 ]
    adjoints [ adjoints of matmuls that are no adjoint of the drive: m·H | adjoints of the drive: n·H ]
                                                                        ^ d_drive
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import torch

from elman.compiler.autodiff import differentiate
from elman.compiler.cell_program import InputProjection
from elman.compiler.cpu.emit import CppFunction, Emitter, Slot, TensorOffset
from elman.compiler.cpu.runtime import SequenceKernel, load_kernels
from elman.compiler.interpreter import group_matmuls
from elman.compiler.ir import ROW, StepIR

EXPENSIVE = {"sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf"}
# The tensors of both kernels, behind the parts of the initial and final state (in backward: their adjoints).
DRIVE, OUTPUT, SAVED, SUMS = range(4)


class MatrixGradient(NamedTuple):
    """One GEMM over all rows and steps: the gradient of `blocks` below each other of a parameter, or of a flipped one.

    `adjoint` and `value` are offsets into the records that backward wrote and forward saved.
    """

    parameter: int
    row: int
    column: int
    blocks: int
    flipped: bool
    adjoint: int
    value: int

    def next(self, size: int) -> "MatrixGradient":
        """The block that would extend this GEMM downwards."""
        row, adjoint = self.row + self.blocks, self.adjoint + self.blocks * size
        return self._replace(row=row, adjoint=adjoint, blocks=1)


class VectorGradient(NamedTuple):
    """Where the accumulated gradients of a parameter's vectors begin, and which of its vectors they are."""

    parameter: int
    start: int
    parts: list[int]


class SequencePlan:
    """`saved`: nodes that backward reads, for the adjoint and for matrix gradients, with their offsets in the record.
    `extra_adjoints`: adjoints of matmuls that are not also adjoints of the drive."""

    def __init__(self, step: StepIR, dtype: torch.dtype, projection: InputProjection):
        self.step, self.dtype, self.projection = step, dtype, projection
        self.names = step.parameters()
        self.zeros = torch.zeros(step.size, dtype=dtype)  # stands for an adjoint that autograd does not return
        self.adjoint = differentiate(step, EXPENSIVE)
        shapes, outputs, count = step.shapes(), self.adjoint.program.outputs, len(self.adjoint.drive)
        operands = [arg for matmul in self.adjoint.matmuls for arg in step.nodes[matmul].args]
        # ROW values come last, so that the others stay aligned
        nodes = sorted({*self.adjoint.saved, *operands}, key=lambda index: shapes[index] == ROW)
        wide = sum(shapes[index] != ROW for index in nodes)
        self.saved = {index: TensorOffset(SAVED, min(n, wide), max(0, n - wide)) for n, index in enumerate(nodes)}
        self.extra_adjoints = list(dict.fromkeys(node for node in outputs[count:] if node not in outputs[:count]))
        # in elements: the saved record; where the drive's adjoints begin in the other one; sums of a row for vectors
        self.record = wide * step.size + -(-(len(nodes) - wide) // 16) * 16
        self.d_drive = len(self.extra_adjoints) * step.size
        self.accumulated = len(self.adjoint.vectors) * step.size
        self.vector_gradients = self._vector_gradients()
        self.matrix_gradients = self._matrix_gradients()

    @cached_property
    def functions(self) -> list[tuple[StepIR, CppFunction]]:
        """Forward and backward in C++."""
        step, adjoint = self.step, self.adjoint.program
        written = *adjoint.outputs[: len(self.adjoint.drive)], *self.extra_adjoints
        forward = Emitter(step, (*step.outputs, *self.saved), self._forward_offsets(), self.names)
        backward = Emitter(adjoint, written, self._backward_offsets(), self.names)
        return [(step, forward.function("forward")), (adjoint, backward.function("backward"))]

    @cached_property
    def kernels(self) -> list[SequenceKernel]:
        """Forward and backward, compiled."""
        return load_kernels(self.dtype, self.functions)

    def _forward_offsets(self) -> dict[Slot, TensorOffset]:
        loads = [node.detail[:2] for node in self.step.nodes if node.op == "load"]
        offsets: dict[Slot, TensorOffset] = {("load", load): TensorOffset(DRIVE, load[1]) for load in loads}
        results = enumerate((TensorOffset(OUTPUT), *self.saved.values()))
        return _after_states(self.step, offsets | {("result", n): offset for n, offset in results})

    def _backward_offsets(self) -> dict[Slot, TensorOffset]:
        extras, order = len(self.extra_adjoints), sorted(self.adjoint.vectors)
        parts = *(extras + part for part in self.adjoint.drive), *range(extras)
        offsets: dict[Slot, TensorOffset] = {("load", ("output", 0)): TensorOffset(OUTPUT)}
        offsets |= {("load", ("saved", n)): self.saved[index] for n, index in enumerate(self.adjoint.saved)}
        offsets |= {("result", n): TensorOffset(DRIVE, part) for n, part in enumerate(parts)}
        for n, vector in enumerate(self.adjoint.vectors):
            offsets["accumulated", n] = TensorOffset(SUMS, order.index(vector))
        return _after_states(self.adjoint.program, offsets)

    def _vector_gradients(self) -> list[VectorGradient]:
        """In the order of names and parts, as they lie in memory."""
        found, start = [], 0
        for name, vectors in groupby(sorted(self.adjoint.vectors), key=lambda vector: vector[0]):
            parts = [part for _, part in vectors]
            found.append(VectorGradient(self.names.index(name), start, parts))
            start += len(parts) * self.step.size
        return found

    def _matrix_gradients(self) -> list[MatrixGradient]:
        """Blocks whose adjoints and rows both follow each other are merged into one GEMM."""
        found: list[MatrixGradient] = []
        for one in self._block_gradients():
            if found and one == found[-1].next(self.step.size):
                found[-1] = found[-1]._replace(blocks=found[-1].blocks + 1)
            else:
                found.append(one)
        return found

    def _block_gradients(self) -> Iterator[MatrixGradient]:
        size, adjoint = self.step.size, self.adjoint
        outputs, count = adjoint.program.outputs, len(adjoint.drive)
        start = {node: n * size for n, node in enumerate(self.extra_adjoints)}
        start |= {node: self.d_drive + part * size for node, part in zip(outputs, adjoint.drive, strict=False)}
        adjoints = {matmul: start[node] for matmul, node in zip(adjoint.matmuls, outputs[count:], strict=True)}
        for args, group in group_matmuls(self.step, among=adjoints).items():
            for position, arg in enumerate(args):
                for index in group:
                    name, row, column, flipped = self.step.nodes[index].detail[position]
                    block = self.names.index(name), row, column, 1, flipped
                    yield MatrixGradient(*block, adjoints[index], self.saved[arg].vectors * size)


def _after_states(program: StepIR, offsets: dict[Slot, TensorOffset]) -> dict[Slot, TensorOffset]:
    """Puts the initial and final states before the other tensors."""
    states: list[Slot] = [(what, part) for what in ("initial", "final") for part in range(len(program.next_state))]
    moved = {slot: offset._replace(tensor=len(states) + offset.tensor) for slot, offset in offsets.items()}
    return moved | {slot: TensorOffset(n) for n, slot in enumerate(states)}
