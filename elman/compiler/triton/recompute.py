"""Recomputation for backward: pointwise nodes of the step at all time steps in one launch, from what forward stored."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elman.compiler.interpreter import parameter_vector
from elman.compiler.ir import CONSTANT, UNITS, Node, StepIR, dependencies
from elman.compiler.triton.launcher import load_module
from elman.compiler.triton.triton_ops import literal, op_templates, prelude

ELEMENTS = 2048  # of each node in one program
WARPS = 4


class RecomputeKernel:
    """Computes `wanted` nodes from `saved` ones and products. A program has some of the B · T rows, with all of their
    H units, so totals need no exchange."""

    def __init__(self, program: StepIR, wanted: tuple[int, ...], saved: Container[int], itemsize: int):
        self.program, self.wanted, self.kinds = program, wanted, program.shapes()
        read = ("matmul", "load", "state", "active")
        nodes = [Node("input") if n in saved or node.op in read else node for n, node in enumerate(program.nodes)]
        self.order = [(index, nodes[index]) for index in sorted(dependencies(nodes, wanted))]
        self.inputs = [index for index, node in self.order if node.op == "input"]
        self.vectors = [index for index, node in self.order if node.op == "vector"]
        self.width = 1 << (program.size - 1).bit_length()
        self.rows = max(1, ELEMENTS // self.width)
        self.templates = op_templates(itemsize)
        self.run = load_module(prelude(itemsize) + self._source()).kernel

    def __call__(
        self, value: Callable[[int], Tensor], weights: Mapping[str, Tensor], shape: Sequence[int], dtype: torch.dtype
    ) -> dict[int, Tensor]:
        """`value` gives inputs, (B, T, H), or (B, T, 1) for one number per row, of any strides; `shape` is (B, T).
        Results are like those, of `dtype`, or float32 for one number per row."""
        program, count = self.program, shape[0] * shape[1]
        arguments: list[Any] = [count, shape[1]]
        for index in self.inputs:
            tensor = value(index)
            tensor = tensor if tensor.stride(-1) == 1 or self.kinds[index] != UNITS else tensor.contiguous()
            arguments += [tensor.to(torch.int8) if tensor.dtype == torch.bool else tensor, *tensor.stride()[:2]]
        for index in self.vectors:
            name, part = program.nodes[index].detail
            arguments.append(parameter_vector(weights[name], part, program.size).contiguous())
        device = arguments[2].device
        found = {}
        for index in self.wanted:
            width, own = (program.size, dtype) if self.kinds[index] == UNITS else (1, torch.float32)
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
            if self.kinds[index] != CONSTANT:
                lines.append(f"v{index} = {self._node(index, node)}")
        for number, index in enumerate(self.wanted):
            if self.kinds[index] == UNITS:
                address, mask = f"o{number} + row * {size} + unit", "mask"
            else:
                address, mask = f"o{number} + row", "row_mask"
            lines.append(f"tl.store({address}, ({self._value(index)}).to(o{number}.dtype.element_ty), mask={mask})")
        return f"\n@triton.jit\ndef kernel({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines) + "\n"

    def _node(self, index: int, node: Node) -> str:
        if node.op == "input":
            n, units = self.inputs.index(index), self.kinds[index] == UNITS
            address = f"g{n} + b * g{n}_b + t * g{n}_t{' + unit' if units else ''}"
            found = f"tl.load({address}, mask={'mask' if units else 'row_mask'}, other=0)"
            return f"{found} != 0" if self.program.nodes[index].op == "active" else f"{found}.to(tl.float32)"
        if node.op == "vector":
            return f"tl.load(p{self.vectors.index(index)} + unit, mask=unit_mask, other=0.0).to(tl.float32)"
        if node.op == "sum":
            return f"tl.sum(tl.where(unit_mask, {self._broadcast(node.args[0])}, 0.0), 1)[:, None]"
        if node.op == "broadcast":
            return self._broadcast(node.args[0])
        return self.templates[node.op].format(*(self._value(arg) for arg in node.args))

    def _value(self, index: int) -> str:
        return literal(self.program, index) if self.kinds[index] == CONSTANT else f"v{index}"

    def _broadcast(self, index: int) -> str:
        return f"({self._value(index)} + zeros)"
