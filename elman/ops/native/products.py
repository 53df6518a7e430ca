"""Products of vectors and matrices: constant ones are packed for kernels that read them once, in order."""

from typing import NamedTuple

import torch

from elman.ops.native.builder import Builder
from elman.ops.native.loops import Writer
from elman.ops.native.memory import CannotCompile, Value

aten = torch.ops.aten
WORTH_ROUNDING = 2**14  # numbers; below, a matrix gains nothing from 8 bits, and its errors weigh more
QUANTISED_HEAD = 64  # bytes before a quantised vector: its scale and its zero


class Packed(NamedTuple):
    """A constant matrix (inner, columns) in the form that a kernel reads."""

    matrix: Value
    form: str  # fp32 or int8


class Products(Builder):
    def __init__(self, writer: Writer, weights: str):
        super().__init__(writer)
        self.weights = weights
        self.packed: list[Packed] = []
        self.quantised: dict[str, Value] = {}

    def linear(self, a: Value, b: Value, bias: Value | None = None) -> Value:
        """Rows times a matrix; if that is constant, by a kernel that reads it once, from one end to the other."""
        (rows, inner), columns = a.shape, b.shape[1]
        if b.buffer.kind != "weights" or a.dtype != torch.float32:
            result = self.product(a, b)
            return result if bias is None else self.pointwise("({0} + {1})", a.dtype, [bias, result])
        form = self.weights if inner * columns >= WORTH_ROUNDING else "fp32"
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
        (batch, rows, inner), columns = a.shape, b.shape[2]
        target = self.writer.temporary((batch, rows, columns), a.dtype)
        sizes = ", ".join(map(str, (batch, rows, inner, columns, *a.layout.stride(), *b.layout.stride())))
        self.writer.call(f"product({a.pointer()}, {b.pointer()}, {target.pointer()}, {sizes});", [a, b])
        return target

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
