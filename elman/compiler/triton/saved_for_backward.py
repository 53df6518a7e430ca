"""What forward saves for backward, and how backward gets the rest: from inputs, or by one recomputation kernel."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from elman.compiler.autodiff import Adjoint
from elman.compiler.interpreter import group_matmuls
from elman.compiler.ir import ROW, UNITS, Node, StepIR, dependencies
from elman.compiler.triton.recompute import RecomputeKernel

AVAILABLE = ("load", "state", "active")  # operations whose values backward has anyway


class SavedHistory(NamedTuple):
    """One direction of forward's `history`, (directions, nodes, rows, T + 1, padded H)."""

    step: StepIR
    stored: tuple[int, ...]
    history: Tensor
    direction: int
    batch: int
    reverse: bool

    def node(self, index: int) -> Tensor:
        """A stored node at each step, (B, T, H)."""
        return self._slots(index, index in self.step.next_state and not self.reverse)

    def state(self, part: int) -> Tensor:
        """A part of the state before each step, (B, T, H)."""
        return self._slots(self.step.next_state[part], self.reverse)

    def _slots(self, index: int, first: int) -> Tensor:
        history = self.history
        direction, node, row, slot, _ = history.stride()
        start = history.storage_offset() + self.direction * direction
        start += self.stored.index(index) * node + first * slot
        # history[direction, node, :B, first:first + T, :H] in one call
        return history.as_strided((self.batch, history.shape[3] - 1, self.step.size), (row, slot, 1), start)


class SavePlan:
    """Which nodes of a step forward saves, and which ones backward recomputes; the same for every call.

    `kept`: nodes that the adjoint loads. `needed`: those, and inputs of products (for weight gradients). `saved`: what
    forward stores for them. GRU: the new state, the product that the reset gate scales, both gates before sigmoid."""

    def __init__(self, step: StepIR, adjoint: Adjoint):
        self.step, self.kept = step, adjoint.saved
        self.products = group_matmuls(step, adjoint.matmuls)
        self.shapes = step.shapes()
        self.needed = tuple(dict.fromkeys((*self.kept, *(arg for args in self.products for arg in args))))
        self.saved = self._saved()
        # variances lose too much in 16 bits; other cells get the precision that forward's products had
        self.dtype = torch.float32 if any(node.op == "sum" for node in step.nodes) else None
        present = [index for index in self.kept if index in self.saved or step.nodes[index].op in AVAILABLE]
        self.recomputed = tuple(index for index in self.kept if index not in present)
        self._kernels: dict[int, RecomputeKernel] = {}

    def _saved(self) -> tuple[int, ...]:
        """States, and needed nodes of shape UNITS; instead of ROW nodes the products from which they are recomputed."""
        nodes, shapes = self.step.nodes, self.shapes
        of_rows = dependencies(nodes, [index for index in self.kept if shapes[index] == ROW])
        products = [index for index in sorted(of_rows) if nodes[index].op == "matmul"]
        own = [index for index in self.needed if shapes[index] == UNITS and nodes[index].op not in AVAILABLE]
        return tuple(dict.fromkeys((*self.step.next_state, *products, *own)))

    @cached_property
    def reads_inputs(self) -> bool:
        """Whether backward needs the step inputs."""
        nodes = [Node("saved") if n in self.saved else node for n, node in enumerate(self.step.nodes)]
        return any(nodes[index].op == "load" for index in dependencies(nodes, self.needed))

    def recompute(self, itemsize: int) -> RecomputeKernel:
        if itemsize not in self._kernels:
            self._kernels[itemsize] = RecomputeKernel(self.step, self.recomputed, self.saved, itemsize)
        return self._kernels[itemsize]


class StepValues:
    """Nodes of the step at all time steps, in one direction, for backward."""

    def __init__(
        self, plan: SavePlan, history: SavedHistory, drive: Tensor, weights: dict[str, Tensor], lengths: Tensor | None
    ):
        self.plan, self.step, self.history = plan, plan.step, history
        self.drive, self.weights, self.lengths = drive, weights, lengths
        self.recomputed: dict[int, Tensor] = {}  # (B, T, H), or (B, T, 1) for one number per row

    def kept(self) -> list[Tensor]:
        """The adjoint's inputs: (B, T, H), or (B, T) for one number per row."""
        plan, history = self.plan, self.history.history
        if plan.recomputed:
            dtype = plan.dtype or history.dtype
            kernel = plan.recompute(history.itemsize)
            self.recomputed = kernel(self._value, self.weights, self.drive.shape[:2], dtype)
        found = [(self._value(index), plan.shapes[index]) for index in plan.kept]
        return [value if kind == UNITS else value.squeeze(-1) for value, kind in found]

    def product_input(self, index: int) -> Tensor:
        """(B · T, H), in the dtype of products."""
        return self._value(index).reshape(-1, self.step.size).to(self.history.history.dtype)

    def _value(self, index: int) -> Tensor:
        size, node = self.step.size, self.step.nodes[index]
        if index in self.recomputed:
            return self.recomputed[index]
        if node.op == "load":
            return self.drive[..., node.detail[1] * size : (node.detail[1] + 1) * size]
        if node.op == "state":
            return self.history.state(node.detail[0])
        if node.op == "active":
            assert self.lengths is not None
            time = torch.arange(self.drive.shape[1], device=self.drive.device)
            return (time < self.lengths.to(time.device).unsqueeze(1)).unsqueeze(-1)
        return self.history.node(index)
