"""Products of vectors and matrices: constant ones are packed for kernels that read them once, in order."""

import math
from typing import NamedTuple

import torch

from elman.compiler.cpu.step.buffers import Buffer, Value
from elman.compiler.cpu.step.builder import Builder
from elman.compiler.cpu.step.loops import LoopWriter
from elman.compiler.cpu.step.packing import packed_size
from elman.compiler.errors import CannotCompile

aten = torch.ops.aten
WORTH_ROUNDING = 2**14  # numbers; below, a matrix gains nothing from 8 bits, and its errors weigh more
QUANTISED_HEAD = 64  # bytes before a quantised vector: its scale and its zero


class Packed(NamedTuple):
    """A constant matrix (inner, columns), or several of them, in the form that a kernel reads."""

    matrix: Value
    form: str  # fp32 or int8


class Choice(NamedTuple):
    """Matrices that were picked from a constant table by their numbers."""

    table: Value
    numbers: Value


class Products(Builder):
    def __init__(self, writer: LoopWriter, weights: str):
        super().__init__(writer)
        self.weights = weights
        self.packed: list[Packed] = []
        self.quantised: dict[str, Value] = {}
        self.choices: dict[Buffer, Choice] = {}

    def linear(self, a: Value, b: Value, bias: Value | None = None) -> Value:
        """Rows times a matrix; if that is constant, by a kernel that reads it once, from one end to the other."""
        (rows, inner), columns = a.shape, b.shape[1]
        if b.buffer.kind != "weights" or a.dtype != torch.float32:
            result = self.product(a, b)
            return result if bias is None else self.pointwise("({0} + {1})", a.dtype, [bias, result])
        form = self.form_of(inner, columns)
        a, name = self.contiguous(a), f"p{len(self.packed)}"
        self.packed.append(Packed(b, form))
        plain = None if bias is None else self.contiguous(bias.expand((columns,)) if len(bias.shape) < 2 else bias)
        target = self.writer.temporary((rows, columns), a.dtype)
        for row in range(rows):
            given = a._replace(layout=a.layout[row])
            reads = [given] if form == "fp32" else [self.quantise(given)]
            added = "nullptr"
            if plain is not None:
                reads.append(plain)
                added = (plain if len(plain.shape) == 1 else plain._replace(layout=plain.layout[row])).pointer()
            place = target._replace(layout=target.layout[row]).pointer()
            call = f"multiply_{form}({name}, {reads[0].pointer()}, {added}, {place}, {inner}, {columns});"
            self.writer.call(call, reads)
        return target

    def quantise(self, vector: Value) -> Value:
        """The vector in 8 bits, once for all products that read it."""
        source = f"{vector.pointer()}, {vector.shape[0]}"
        if source not in self.quantised:
            target = self.writer.temporary((QUANTISED_HEAD + -(-vector.shape[0] // 4) * 4,), torch.uint8)
            self.writer.call(f"quantise({source}, {target.pointer()});", [vector])
            self.quantised[source] = target
        return self.quantised[source]

    def product(self, a: Value, b: Value) -> Value:
        """Matrices, or batches of them, none of which is known before."""
        if a.dtype not in (torch.float32, torch.float64):
            raise CannotCompile(f"a product of {str(a.dtype).removeprefix('torch.')} is not known")
        if len(a.shape) == 2:
            whole = self.product(*(part._replace(layout=part.layout.unsqueeze(0)) for part in (a, b)))
            return whole._replace(layout=whole.layout.squeeze(0))
        if (table := self.table_of(b)) is not None:
            return self.chosen(a, table, self.choices[b.buffer].numbers)
        (batch, rows, inner), columns = a.shape, b.shape[2]
        target = self.writer.temporary((batch, rows, columns), a.dtype)
        sizes = ", ".join(map(str, (batch, rows, inner, columns, *a.layout.stride(), *b.layout.stride())))
        self.writer.call(f"product({a.pointer()}, {b.pointer()}, {target.pointer()}, {sizes});", [a, b])
        return target

    def note_choice(self, table: Value, numbers: Value, picked: Value) -> None:
        if table.buffer.kind == "weights" and table.dtype == torch.float32 and len(table.shape) == 3:
            self.choices[picked.buffer] = Choice(table, numbers)

    def table_of(self, picked: Value) -> Value | None:
        """All matrices of the table that these were picked from, turned as they are; None where there is no such."""
        choice = self.choices.get(picked.buffer)
        if choice is None:
            return None
        (count, *shape), (step, *strides) = picked.shape, picked.layout.stride()
        size, layout = math.prod(shape), choice.table.layout
        if count * size != picked.buffer.size or (count > 1 and step != size):
            return None
        turned = layout.as_strided((len(layout), *shape), (size, *strides), layout.storage_offset())
        return choice.table._replace(layout=turned)

    def chosen(self, a: Value, table: Value, numbers: Value) -> Value:
        """Each of some vectors times the matrix with its number: only those that are chosen are read."""
        (batch, rows, inner), (count, _, columns) = a.shape, table.shape
        form = self.form_of(inner, columns)
        a, name = self.contiguous(a), f"p{len(self.packed)}"
        self.packed.append(Packed(table, form))
        target = self.writer.temporary((batch, rows, columns), a.dtype)
        size = packed_size(inner, columns, form)
        for n in range(batch):
            matrix = f"(const char*){name} + inside({numbers.pointer()}[{n}], {count}) * {size}"
            for row in range(rows):
                given, place = (value._replace(layout=value.layout[n, row]) for value in (a, target))
                vector = given if form == "fp32" else self.quantise(given)
                call = f"multiply_{form}({matrix}, {vector.pointer()}, nullptr, {place.pointer()}, {inner}, {columns});"
                self.writer.call(call, [vector, numbers])
        return target

    def form_of(self, inner: int, columns: int) -> str:
        return self.weights if inner * columns >= WORTH_ROUNDING else "fp32"

    def convolution(
        self,
        value: Value,
        weight: Value,
        bias: Value | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
    ) -> Value:
        """Of a window as long as the kernel reaches: one product, or one for each channel."""
        if transposed or any(padding) or len(value.shape) != 3:
            raise CannotCompile("a convolution with padding, or of more than one axis, is not known")
        batch, channels, time = value.shape
        count, inner, size = weight.shape
        if time != (size - 1) * dilation[0] + 1 or groups not in (1, channels) or (groups > 1 and count != channels):
            raise CannotCompile("a convolution of many places, or in groups of channels, is not known")
        seen = value._replace(layout=value.layout[:, :, :: dilation[0]])
        if groups == 1:
            flat = self.contiguous(seen)
            flat = flat._replace(layout=flat.layout.view(batch, channels * size))
            result = self.linear(flat, weight._replace(layout=weight.layout.view(count, inner * size).t()), bias)
        else:
            each = weight._replace(layout=weight.layout.view(1, channels, size))
            parts = self.pointwise("({0} * {1})", value.dtype, [seen, each])
            result = self.reduction(aten.sum, value.dtype, parts, [2])
            result = result if bias is None else self.pointwise("({0} + {1})", value.dtype, [result, bias])
        return result._replace(layout=result.layout.unsqueeze(2))
