"""What forward saves for backward, and how backward gets the rest: from inputs, or by one recomputation kernel."""

from collections.abc import Container, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.compiler.autodiff import Adjoint
from elman.compiler.interpreter import Values, Weights, group_matmuls, parameter_vector
from elman.compiler.ir import CONSTANT, ROW, UNITS, Node, StepIR, dependencies
from elman.compiler.triton.launcher import load_module
from elman.compiler.triton.triton_ops import literal, op_templates, prelude

AVAILABLE = ("load", "state", "active")  # operations whose values backward has anyway
ELEMENTS = 2048  # of each node in one program of the recomputation kernel
WARPS = 4


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


class RecomputeKernel:
    """Computes `wanted` nodes from `saved` ones and products. A program has some of the B · T rows, with all of their
    H units, so totals need no exchange."""

    def __init__(self, program: StepIR, wanted: tuple[int, ...], saved: Container[int], itemsize: int):
        self.program, self.wanted, self.shapes = program, wanted, program.shapes()
        read = ("matmul", "load", "state", "active")
        nodes = [Node("input") if n in saved or node.op in read else node for n, node in enumerate(program.nodes)]
        self.order = [(index, nodes[index]) for index in sorted(dependencies(nodes, wanted))]
        self.inputs = [index for index, node in self.order if node.op == "input"]
        self.vectors = [index for index, node in self.order if node.op == "vector"]
        self.width = 1 << (program.size - 1).bit_length()
        self.rows = max(1, ELEMENTS // self.width)
        self.templates = op_templates(itemsize)
        self.run = load_module(prelude(itemsize) + self._source()).kernel

    def __call__(self, value: Values, weights: Weights, shape: Sequence[int], dtype: torch.dtype) -> dict[int, Tensor]:
        """`value` gives inputs, (B, T, H), or (B, T, 1) for one number per row, of any strides; `shape` is (B, T).
        Results are like those, of `dtype`, or float32 for one number per row."""
        program, count = self.program, shape[0] * shape[1]
        arguments: list[Any] = [count, shape[1]]
        for index in self.inputs:
            tensor = value(index)
            tensor = tensor if tensor.stride(-1) == 1 or self.shapes[index] != UNITS else tensor.contiguous()
            arguments += [tensor.to(torch.int8) if tensor.dtype == torch.bool else tensor, *tensor.stride()[:2]]
        for index in self.vectors:
            name, part = program.nodes[index].detail
            arguments.append(parameter_vector(weights[name], part, program.size).contiguous())
        device = arguments[2].device
        found = {}
        for index in self.wanted:
            width, own = (program.size, dtype) if self.shapes[index] == UNITS else (1, torch.float32)
            found[index] = torch.empty(*shape, width, dtype=own, device=device)
        self.run[(-(-count // self.rows),)](*arguments, *found.values(), num_warps=WARPS)
        return found

    def _source(self) -> str:
        names = ["count", "time"]
        names += [f"g{n}{end}" for n in range(len(self.inputs)) for end in ("", "_b", "_t")]
        names += [f"p{n}" for n in range(len(self.vectors))] + [f"o{n}" for n in range(len(self.wanted))]
        size, lines = self.program.size, [f"rows = tl.program_id(0) * {self.rows} + tl.arange(0, {self.rows})"]
        lines += ["row = rows.to(tl.int64)[:, None]", "b = row // time", "t = row % time"]
        lines += ["row_mask = (rows < count)[:, None]", f"unit = tl.arange(0, {self.width})[None, :]"]
        lines += [f"unit_mask = unit < {size}", "mask = row_mask & unit_mask"]
        lines.append(f"zeros = tl.zeros(({self.rows}, {self.width}), tl.float32)")
        for index, node in self.order:
            if self.shapes[index] != CONSTANT:
                lines.append(f"v{index} = {self._node(index, node)}")
        for number, index in enumerate(self.wanted):
            units = self.shapes[index] == UNITS
            address, mask = (f"row * {size} + unit", "mask") if units else ("row", "row_mask")
            value = f"({self._value(index)}).to(o{number}.dtype.element_ty)"
            lines.append(f"tl.store(o{number} + {address}, {value}, mask={mask})")
        return f"\n@triton.jit\ndef kernel({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines) + "\n"

    def _node(self, index: int, node: Node) -> str:
        if node.op == "input":
            n, units = self.inputs.index(index), self.shapes[index] == UNITS
            address = f"g{n} + b * g{n}_b + t * g{n}_t{' + unit' if units else ''}"
            found = f"tl.load({address}, mask={'mask' if units else 'row_mask'}, other=0)"
            return f"{found} != 0" if self.program.nodes[index].op == "active" else f"{found}.to(tl.float32)"
        if node.op == "vector":
            return f"tl.load(p{self.vectors.index(index)} + unit, mask=unit_mask, other=0.0).to(tl.float32)"
        if node.op == "sum":
            return f"tl.sum(tl.where(unit_mask, ({self._value(node.args[0])} + zeros), 0.0), 1)[:, None]"
        if node.op == "broadcast":
            return f"({self._value(node.args[0])} + zeros)"
        return self.templates[node.op].format(*(self._value(arg) for arg in node.args))

    def _value(self, index: int) -> str:
        return literal(self.program, index) if self.shapes[index] == CONSTANT else f"v{index}"


class SavePlan:
    """Which nodes of a step forward saves, and which ones backward recomputes; the same for every call.

    `kept`: nodes that the adjoint loads. `needed`: those, and inputs of products (for weight gradients). `saved`: what
    forward stores for them. GRU: the new state, the product that the reset gate scales, both gates before sigmoid."""

    def __init__(self, step: StepIR, adjoint: Adjoint):
        self.step, self.kept = step, adjoint.saved
        self.products = group_matmuls(step, adjoint.matmuls)
        self.shapes = step.shapes()
        self.needed = tuple(dict.fromkeys((*self.kept, *(arg for args in self.products for arg in args))))
        # states, and needed nodes of shape UNITS; instead of ROW nodes the products from which they are recomputed
        of_rows = dependencies(step.nodes, [index for index in self.kept if self.shapes[index] == ROW])
        products = [index for index in sorted(of_rows) if step.nodes[index].op == "matmul"]
        wide = [n for n in self.needed if self.shapes[n] == UNITS and step.nodes[n].op not in AVAILABLE]
        self.saved = tuple(dict.fromkeys((*step.next_state, *products, *wide)))
        # variances lose too much in 16 bits; other cells get the precision that forward's products had
        self.dtype = torch.float32 if any(node.op == "sum" for node in step.nodes) else None
        present = [index for index in self.kept if index in self.saved or step.nodes[index].op in AVAILABLE]
        self.recomputed = tuple(index for index in self.kept if index not in present)
        nodes = [Node("saved") if n in self.saved else node for n, node in enumerate(step.nodes)]
        self.reads_inputs = any(nodes[index].op == "load" for index in dependencies(nodes, self.needed))
        self.recompute = cache(lambda itemsize: RecomputeKernel(step, self.recomputed, self.saved, itemsize))


class StepValues:
    """Nodes of the step at all time steps, in one direction, for backward."""

    def __init__(self, plan: SavePlan, history: SavedHistory, drive: Tensor, weights: Weights, lengths: Tensor | None):
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
