"""Loops over numbers: each operation adds a line, and neighbours of the same shape share one loop.

Inside a shared loop a value is a local variable; it is stored only if somebody else reads it. A sum over the last axes
is taken in the same loop as what is summed.
"""

from dataclasses import dataclass, field

import torch

from elman.compiler.cpu.step.buffers import Buffer, Value, c_type, loop_variables

Lines = list[tuple[str, Buffer | None]]  # C, and the buffer that it only serves to fill


@dataclass
class Loop:
    sizes: tuple[int, ...]
    depth: int  # loops outside of the sums; all of them where there are none
    start: Lines = field(default_factory=list)
    body: Lines = field(default_factory=list)
    end: Lines = field(default_factory=list)
    local: dict[str, str] = field(default_factory=dict)  # element in memory -> variable that holds it
    written: set[Buffer] = field(default_factory=set)

    def fits(self, sizes: tuple[int, ...], depth: int, elements: list[tuple[str, Buffer]]) -> bool:
        """Whether a line may join: same loops, and what was computed here is read only where it was computed."""
        depths = {self.depth, depth} - {len(sizes)}
        known = all(buffer not in self.written or element in self.local for element, buffer in elements)
        return self.sizes == sizes and len(depths) < 2 and known

    def text(self, alive: set[Buffer]) -> str:
        def lines(some: Lines) -> list[str]:
            return [line for line, buffer in some if buffer is None or buffer in alive]

        loops = [f"for (int64_t i{n} = 0; i{n} < {size}; ++i{n})" for n, size in enumerate(self.sizes)]
        inner = "\n".join(lines(self.body))
        for loop in reversed(loops[self.depth :]):
            inner = f"{loop} {{\n{inner}\n}}"
        inner = "\n".join([*lines(self.start), inner, *lines(self.end)])
        for loop in reversed(loops[: self.depth]):
            inner = f"{loop} {{\n{inner}\n}}"
        return f"{{\n{inner}\n}}"


@dataclass
class Call:
    text: str
    reads: list[Buffer]
    fills: Buffer | None  # and nothing else: if nobody reads it, there is no call


class LoopWriter:
    """Collects the program: loops, and calls of kernels between them."""

    def __init__(self) -> None:
        self.parts: list[Loop | Call] = []
        self.scratch: list[Buffer] = []
        self.alive: set[Buffer] = set()  # read from memory by somebody
        self.count = 0

    def temporary(self, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> Value:
        c_type(dtype)
        buffer = Buffer(f"t{len(self.scratch)}", "scratch", max(1, torch.Size(shape).numel()), dtype)
        self.scratch.append(buffer)
        return Value.whole(buffer, shape)

    def call(self, text: str, reads: list[Value], fills: Value | None = None) -> None:
        call = Call(text, [value.buffer for value in reads], fills.buffer if fills else None)
        self.parts.append(call)
        if fills is None:
            self.alive.update(call.reads)

    def finish(self) -> None:
        """Now that all readers are known: what is called only to fill a buffer stays if somebody reads that."""
        for part in reversed(self.parts):
            if isinstance(part, Call) and part.fills in self.alive:
                self.alive.update(part.reads)

    def each(self, formula: str, dtype: torch.dtype | None, inputs: list[Value], target: Value) -> None:
        """`target = formula` at every place; `{0}`, `{1}` … are the inputs, turned into `dtype` if it is given."""
        variables, sizes = loop_variables(target.shape)
        loop, read = self._enter(sizes, len(sizes), [v.expand(target.shape) for v in inputs], variables, dtype)
        name, element, kind = self._name(), target.element(variables), c_type(target.dtype)
        loop.body.append((f"const {kind} {name} = ({kind})({formula.format(*read)});", None))
        loop.body.append((f"{element} = {name};", target.buffer))
        loop.local[element] = name
        loop.written.add(target.buffer)

    def reduce(self, start: str, formula: str, value: Value, last: int, target: Value) -> None:
        """`target = formula(target, value)` over the last axes; `{0}` is the result so far, `{1}` the next number."""
        variables, sizes = loop_variables(value.shape)
        kept = len(value.shape) - last
        depth = sum(size != 1 for size in value.shape[:kept])
        if depth == len(sizes):  # a single number each
            single = value._replace(layout=value.layout.view_as(target.layout))
            return self.each(formula.format(start, "{0}"), target.dtype, [single], target)
        loop, (read,) = self._enter(sizes, depth, [value], variables, target.dtype)
        loop.depth = min(depth, loop.depth)
        name, kind = self._name(), c_type(target.dtype)
        loop.start.append((f"{kind} {name} = {start};", target.buffer))
        loop.body.append((f"{name} = {formula.format(name, read)};", target.buffer))
        loop.end.append((f"{target.element(variables[:kept])} = {name};", target.buffer))
        loop.written.add(target.buffer)

    def text(self) -> str:
        parts = [
            part for part in self.parts if isinstance(part, Loop) or part.fills is None or part.fills in self.alive
        ]
        return "\n".join(part.text(self.alive) if isinstance(part, Loop) else part.text for part in parts)

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _enter(
        self, sizes: tuple[int, ...], depth: int, inputs: list[Value], variables: list[str], dtype: torch.dtype | None
    ) -> tuple[Loop, list[str]]:
        """The loop that a new line goes into, and the inputs as it reads them."""
        elements = [(value.element(variables), value.buffer) for value in inputs]
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Loop) and last.fits(sizes, depth, elements):
            loop = last
        else:
            loop = Loop(sizes, depth)
            self.parts.append(loop)
        self.alive |= {buffer for element, buffer in elements if element not in loop.local}
        read = [loop.local.get(element, element) for element, _ in elements]
        casts = ["" if dtype in (None, value.dtype) else f"({c_type(dtype)})" for value in inputs]
        return loop, [cast + name for cast, name in zip(casts, read, strict=True)]
