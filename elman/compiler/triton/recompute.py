"""Nodes of a unit program at all steps at once, in one launch: each program has some rows and all of their units."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elman.compiler.interpreter import parameter_vector
from elman.compiler.ir import CONSTANT, UNITS, Node, StepIR, dependencies
from elman.compiler.triton.launcher import module
from elman.compiler.triton.triton_ops import head, literal, words

NUMBERS = 2048  # that a program has of each node
WARPS = 4


class Filling:
    """Some wanted nodes, where `known` ones and all products are given."""

    def __init__(self, program: StepIR, wanted: tuple[int, ...], known: Container[int], itemsize: int):
        self.program, self.wanted, self.kinds = program, wanted, program.shapes()
        given = ("matmul", "load", "state", "active")
        nodes = [Node("known") if n in known or node.op in given else node for n, node in enumerate(program.nodes)]
        self.order = [(index, nodes[index]) for index in sorted(dependencies(nodes, wanted))]
        self.given = [index for index, node in self.order if node.op == "known"]
        self.vectors = [index for index, node in self.order if node.op == "vector"]
        self.width = 1 << (program.size - 1).bit_length()
        self.rows = max(1, NUMBERS // self.width)
        self.words = words(itemsize)
        self.run = module(head(itemsize) + self._source()).kernel

    def __call__(
        self, value: Callable[[int], Tensor], weights: Mapping[str, Tensor], shape: Sequence[int], kind: torch.dtype
    ) -> dict[int, Tensor]:
        """`value` gives what is known (batch, time, H), or (batch, time, 1) where all units share a number, of any
        strides; `shape` is (batch, time). The wanted nodes are like those, of `kind`, or of float32 if shared."""
        program, count = self.program, shape[0] * shape[1]
        passed: list[Any] = [count, shape[1]]
        for index in self.given:
            tensor = value(index)
            tensor = tensor if tensor.stride(-1) == 1 or self.kinds[index] != UNITS else tensor.contiguous()
            passed += [tensor.to(torch.int8) if tensor.dtype == torch.bool else tensor, *tensor.stride()[:2]]
        for index in self.vectors:
            name, part = program.nodes[index].detail
            passed.append(parameter_vector(weights[name], part, program.size).contiguous())
        device = passed[2].device
        found = {}
        for index in self.wanted:
            width, own = (program.size, kind) if self.kinds[index] == UNITS else (1, torch.float32)
            found[index] = torch.empty(*shape, width, dtype=own, device=device)
        self.run[(-(-count // self.rows),)](*passed, *found.values(), num_warps=WARPS)
        return found

    def _source(self) -> str:
        names = ["count", "time"]
        names += [f"g{n}{end}" for n in range(len(self.given)) for end in ("", "_b", "_t")]
        names += [f"p{n}" for n in range(len(self.vectors))] + [f"o{n}" for n in range(len(self.wanted))]
        size, lines = self.program.size, [f"rows = tl.program_id(0) * {self.rows} + tl.arange(0, {self.rows})"]
        lines += [
            "row = rows.to(tl.int64)[:, None]",
            "b = row // time",
            "t = row % time",
            "real = (rows < count)[:, None]",
        ]
        lines += [f"unit = tl.arange(0, {self.width})[None, :]", f"inside = unit < {size}", "all = real & inside"]
        lines.append(f"blank = tl.zeros(({self.rows}, {self.width}), tl.float32)")
        for index, node in self.order:
            if self.kinds[index] != CONSTANT:
                lines.append(f"v{index} = {self._node(index, node)}")
        for number, index in enumerate(self.wanted):
            if self.kinds[index] == UNITS:
                place, mask = f"o{number} + row * {size} + unit", "all"
            else:
                place, mask = f"o{number} + row", "real"
            lines.append(f"tl.store({place}, ({self._value(index)}).to(o{number}.dtype.element_ty), mask={mask})")
        return f"\n@triton.jit\ndef kernel({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines) + "\n"

    def _node(self, index: int, node: Node) -> str:
        if node.op == "known":
            n = self.given.index(index)
            place = f"g{n} + b * g{n}_b + t * g{n}_t"
            units = self.kinds[index] == UNITS
            found = f"tl.load({place}{' + unit' if units else ''}, mask={'all' if units else 'real'}, other=0)"
            return f"{found} != 0" if self.program.nodes[index].op == "active" else f"{found}.to(tl.float32)"
        if node.op == "vector":
            return f"tl.load(p{self.vectors.index(index)} + unit, mask=inside, other=0.0).to(tl.float32)"
        if node.op == "sum":
            return f"tl.sum(tl.where(inside, {self._full(node.args[0])}, 0.0), 1)[:, None]"
        if node.op == "broadcast":
            return self._full(node.args[0])
        return self.words[node.op].format(*(self._value(arg) for arg in node.args))

    def _value(self, index: int) -> str:
        return literal(self.program, index) if self.kinds[index] == CONSTANT else f"v{index}"

    def _full(self, index: int) -> str:
        return f"({self._value(index)} + blank)"
