"""Matmuls and convolutions of a step: by constant matrices packed for a GEMV kernel, or of computed ones.

Matrices are packed in panels of 16 columns, so that memory is read in order:

    fp32: [W[0, c..c+16)  W[1, c..c+16)  ...  W[inner-1, c..c+16)  gap] for c = 0, 16, 32, ...
    int8: the same in groups of four rows, then the scale and the sum of each column
    rows: of a table that is read row by row, each row in 8 bits, then its scale
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.compiler.cpu.step.buffers import Buffer, Value
from elman.compiler.cpu.step.loops import LoopFuser, Product
from elman.compiler.errors import CannotCompile

LANES, GAP = 16, 2  # columns of a panel, and unused rows behind it, as in products.h
MIN_INT8 = 2**14  # elements; a smaller matrix gains nothing from 8 bits, and its rounding errors weigh more
QUANTISED_HEADER = 64  # bytes before a quantised vector: its scale and zero point


class MatmulOps:
    def __init__(self, fuser: LoopFuser, weights: str = "fp32"):
        self.fuser, self.weights = fuser, weights
        self.packed: list[tuple[Value, str]] = []  # a constant matrix (inner, columns), or several, and its format
        self.quantised: dict[str, Value] = {}
        # by matrices that were gathered from a constant table: the table, and the indices
        self.gathered: dict[Buffer, tuple[Value, Value]] = {}

    def lower_mm(self, a: Value, b: Value, bias: Value | None = None) -> Value:
        """a @ b + bias; a constant b is packed and read once, from one end to the other."""
        (rows, inner), columns = a.shape, b.shape[1]
        if b.buffer.memory != "weights" or a.dtype != torch.float32:
            result = self.lower_bmm(a, b)
            return result if bias is None else self.fuser.pointwise("({0} + {1})", a.dtype, [bias, result])
        a = self.fuser.contiguous(a)
        name, format = self._pack(b, inner, columns)
        if bias is not None:
            bias = self.fuser.contiguous(bias.expand((columns,)) if len(bias.shape) < 2 else bias)
        target = self.fuser.temporary((rows, columns), a.dtype)
        for row in range(rows):
            x, y = (value._replace(layout=value.layout[row]) for value in (a, target))
            reads, added = [x if format == "fp32" else self._quantise(x)], "nullptr"
            if bias is not None:
                reads.append(bias)
                added = (bias if len(bias.shape) == 1 else bias._replace(layout=bias.layout[row])).pointer()
            places = reads[0].pointer(), added, y.pointer()
            self.fuser.product(Product(f"gemm_{format}", name, *places, inner, columns), reads)
        return target

    def lower_addmm(self, bias: Value, a: Value, b: Value) -> Value:
        return self.lower_mm(a, b, bias)

    def _pack(self, matrix: Value, inner: int, columns: int) -> tuple[str, str]:
        """The name and format of a matrix in packed form."""
        format = self.weights if inner * columns >= MIN_INT8 else "fp32"
        self.packed.append((matrix, format))
        return f"p{len(self.packed) - 1}", format

    def rounded_table(self, table: Value) -> str | None:
        """The name of a constant table in 8 bits, whose rows are read one by one; None if it stays as it is."""
        if self.weights != "int8" or table.buffer.memory != "weights" or table.dtype != torch.float32:
            return None
        if len(table.shape) != 2 or math.prod(table.shape) < MIN_INT8:
            return None
        self.packed.append((table, "rows"))
        return f"p{len(self.packed) - 1}"

    def _quantise(self, vector: Value) -> Value:
        """The vector in 8 bits, once for all products that read it."""
        source = f"{vector.pointer()}, {vector.shape[0]}"
        if source not in self.quantised:
            target = self.fuser.temporary((QUANTISED_HEADER + -(-vector.shape[0] // 4) * 4,), torch.uint8)
            self.fuser.call(f"quantise({source}, {target.pointer()});", [vector])
            self.quantised[source] = target
        return self.quantised[source]

    def lower_bmm(self, a: Value, b: Value) -> Value:
        """The product of two computed matrices, or batches of them."""
        if a.dtype not in (torch.float32, torch.float64):
            raise CannotCompile(f"a matmul of {str(a.dtype).removeprefix('torch.')} is not supported")
        if len(a.shape) == 2:
            whole = self.lower_bmm(*(part._replace(layout=part.layout.unsqueeze(0)) for part in (a, b)))
            return whole._replace(layout=whole.layout.squeeze(0))
        if (table := self._table_of(b)) is not None:
            return self._gathered_matmul(a, table, self.gathered[b.buffer][1])
        (batch, rows, inner), columns = a.shape, b.shape[2]
        target = self.fuser.temporary((batch, rows, columns), a.dtype)
        sizes = ", ".join(map(str, (batch, rows, inner, columns, *a.layout.stride(), *b.layout.stride())))
        self.fuser.call(f"batched_matmul({a.pointer()}, {b.pointer()}, {target.pointer()}, {sizes});", [a, b])
        return target

    def note_gather(self, table: Value, index: Value, rows: Value) -> None:
        """Remembers that `rows` are `table[index]`, so that a matmul by them can read the table itself."""
        if table.buffer.memory == "weights" and table.dtype == torch.float32 and len(table.shape) == 3:
            self.gathered[rows.buffer] = table, index

    def _table_of(self, rows: Value) -> Value | None:
        """The whole table from which these matrices were gathered, permuted as they are."""
        if rows.buffer not in self.gathered:
            return None
        whole, _ = self.gathered[rows.buffer]
        (count, *shape), (step, *strides) = rows.shape, rows.layout.stride()
        size, layout = math.prod(shape), whole.layout
        if count * size != rows.buffer.size or (count > 1 and step != size):
            return None
        permuted = layout.as_strided((len(layout), *shape), (size, *strides), layout.storage_offset())
        return whole._replace(layout=permuted)

    def _gathered_matmul(self, a: Value, table: Value, index: Value) -> Value:
        """Each vector of `a` times the table's matrix at its index; only those matrices are read."""
        (batch, rows, inner), (count, _, columns) = a.shape, table.shape
        a = self.fuser.contiguous(a)
        name, format = self._pack(table, inner, columns)
        target = self.fuser.temporary((batch, rows, columns), a.dtype)
        size = packed_size(inner, columns, format)
        for n in range(batch):
            matrix = f"(const char*){name} + clamp_index({index.pointer()}[{n}], {count}) * {size}"
            for row in range(rows):
                x, y = (value._replace(layout=value.layout[n, row]) for value in (a, target))
                x = x if format == "fp32" else self._quantise(x)
                call = f"gemv(gemm_{format}, {matrix}, {x.pointer()}, {y.pointer()}, {inner}, {columns});"
                self.fuser.call(call, [x, index])
        return target

    def lower_convolution(self, value: Value, weight: Value, bias: Value | None, stride: Any, *options: Any) -> Value:
        """A convolution with one output position: one GEMV, or for a depthwise one a dot product for each channel."""
        padding, dilation, transposed, _, groups = options
        if transposed or any(padding) or len(value.shape) != 3:
            raise CannotCompile("a convolution with padding, or over more than one axis, is not supported")
        batch, channels, time = value.shape
        count, inner, size = weight.shape
        if time != (size - 1) * dilation[0] + 1 or groups not in (1, channels) or (groups > 1 and count != channels):
            raise CannotCompile("a convolution with several output positions or grouped channels is not supported")
        seen = value._replace(layout=value.layout[:, :, :: dilation[0]])
        if groups == 1:
            flat = self.fuser.contiguous(seen)
            flat = flat._replace(layout=flat.layout.view(batch, channels * size))
            result = self.lower_mm(flat, weight._replace(layout=weight.layout.view(count, inner * size).t()), bias)
        else:
            taps = weight._replace(layout=weight.layout.view(1, channels, size))
            products = self.fuser.pointwise("({0} * {1})", value.dtype, [seen, taps])
            result = self.fuser.reduction("sum", value.dtype, products, [2])
            if bias is not None:
                result = self.fuser.pointwise("({0} + {1})", value.dtype, [result, bias])
        return result._replace(layout=result.layout.unsqueeze(2))


def pack(matrix: Tensor, format: str) -> Tensor:
    """The bytes of a matrix (inner, columns) for `gemm_fp32` or `gemm_int8`, of several matrices one after another; or
    of a table for `gather_rounded`."""
    if format == "rows":
        return _rounded_rows(matrix)
    if matrix.dim() > 2:
        return torch.cat([pack(part, format) for part in matrix])
    matrix = F.pad(matrix, (0, -matrix.shape[1] % LANES))
    panels = _fp32_panels(matrix) if format == "fp32" else _int8_panels(matrix)
    return panels.contiguous().view(-1).view(torch.uint8)


def packed_size(inner: int, columns: int, format: str) -> int:
    """The length of `pack`'s result in bytes."""
    columns += -columns % LANES
    return 4 * (inner + GAP) * columns if format == "fp32" else (inner + -inner % 4 + 8) * columns


def _fp32_panels(matrix: Tensor) -> Tensor:
    """(panels, inner, 16)"""
    return F.pad(matrix, (0, 0, 0, GAP)).unflatten(1, (-1, LANES)).transpose(0, 1)


def _rounded_rows(table: Tensor) -> Tensor:
    """Rows from -127 to 127, each followed by its scale."""
    scales = table.abs().amax(1, keepdim=True).div(127)
    scales = torch.where(scales > 0, scales, 1)
    rounded = F.pad((table / scales).round(), (0, -table.shape[1] % 4)).to(torch.int8)
    return torch.cat([rounded, scales.contiguous().view(torch.int8)], 1).flatten().view(torch.uint8)


def _int8_panels(matrix: Tensor) -> Tensor:
    """Symmetric quantisation to -127 … 127 with a scale for each column; the sums undo the input's zero point."""
    scales = matrix.abs().amax(0).div(127)
    scales = torch.where(scales > 0, scales, 1)
    rounded = F.pad((matrix / scales).round(), (0, 0, 0, -matrix.shape[0] % 4))
    fours = rounded.to(torch.int8).unflatten(0, (-1, 4)).unflatten(2, (-1, LANES)).permute(2, 0, 3, 1)
    parts = [fours.flatten(1), *(part.view(torch.int8).view(-1, 4 * LANES) for part in (scales, rounded.sum(0).int()))]
    return torch.cat(parts, 1)
