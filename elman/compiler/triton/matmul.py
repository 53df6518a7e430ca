"""Products of a step: weights stay on the chip for all steps, inputs come from the other programs at each step.

Products with the same inputs are computed together. For P programs, R rows, U units, W warps that split K, and c of a
group's products side by side (a power of two, `bundle`), one K tile and one dot are

    fragment loads (mma.sync)   accumulator [W, c U, R] += weights [W, c U, K/W] @ values [W, K/W, R]
    plain loads (mma.sync)      accumulator [W, R, c U] += values [W, R, K/W] @ weights [W, K/W, c U]
    wgmma                       accumulator [c U, R]    += weights [c U, K]     @ values [K, R]   (weights in shared)

After the last tile the W accumulators are added (`_add_warps`), and columns, where the c products of a unit are
neighbours (column = unit * c + product), are separated by tl.split (`_split_columns`).
Example, GRU forward, H 512, R 8, U 32, W 4: three products of the old state, in bundles of 2 and 1; each K tile of 128
takes two dots, [4, 64, 32] @ [4, 32, 8] and [4, 32, 32] @ [4, 32, 8]. Kernels call the place in a bundle `part`.
"""

from itertools import product

from elman.compiler.ir import UNITS, MatrixBlock
from elman.compiler.triton import spin_loads
from elman.compiler.triton.builder import KernelBuilder
from elman.compiler.triton.partition import READ_WINDOW, powers
from elman.compiler.triton.spin_loads import ValueTile, WeightTile
from elman.compiler.triton.triton_ops import interpreted


class Matmul:
    def __init__(self, builder: KernelBuilder):
        self.b = builder
        self.k_tiles = builder.part.k_tiles(builder.size)
        self.split_k = builder.part.split_k if builder.num_programs > 1 else 1
        # of fragment loads
        self.value_tile = ValueTile(builder.part.rows, self.k_tiles[0][1], builder.part.split_k, builder.itemsize)

    # before the loop

    def load_weights(self) -> None:
        """All weights of the program's units, tile by tile, into registers or shared memory (the compiler's choice,
        but for tiles that `register_tiles` asks for)."""
        for args, group in self.b.products.items():
            tiles = range(len(self.k_tiles))
            for tile in product(range(len(args)), _bundles(group), tiles, self._unit_blocks()):
                self._load_weight_tile(*tile)

    def set_up_addresses(self) -> None:
        """Which rows and which part of K each lane loads, for fragment loads."""
        b = self.b
        if b.fragment_loads and b.products:
            b.write(f"tile_row = {self.value_tile.row_index()}")
            if not b.st_async:
                b.write(f"tile_row = (group * {b.part.rows} + tile_row).to(tl.int64) * history_r")
            b.write(f"tile_k = {self.value_tile.k_index()}")

    def _unit_blocks(self) -> list[tuple[int, int]]:
        """Units of one dot: first and number, a power of two (24 units are 16 + 8)."""
        sizes = powers(self.b.part.units)
        return [(sum(sizes[:n]), size) for n, size in enumerate(sizes)]

    def _load_weight_tile(self, arg: int, bundle: list[int], tile: int, block: tuple[int, int]) -> None:
        b, part, width, (first, count) = self.b, self.b.part, len(bundle), block
        start, length = self.k_tiles[tile]
        name = self._weight_name(bundle, arg, tile, first)
        columns = f"tl.arange(0, {count * width})"
        unit = f"rank * {part.units}{f' + {first}' if first else ''}"
        in_registers = b.fragment_loads and tile < part.register_tiles
        if in_registers:
            b.functions["load_weights"] = spin_loads.weight_load_function(b.itemsize, interpreted())
            weights = WeightTile(self.value_tile, count * width)
            b.write(f"k = {start} + {weights.k_index()}")
            b.write(f"n = {unit} + ({weights.column_index()}) // {width}")
            b.write(f"part = ({weights.column_index()}) % {width}")
        else:
            axis, per_warp = "[None, :]", length // self.split_k
            if self.split_k > 1:
                axis = "[None, None, :]"
                b.write(f"k = {start} + tl.arange(0, {self.split_k})[:, None, None] * {per_warp}")
                b.write(f"k = k + tl.arange(0, {per_warp})[None, :, None]")
            else:
                b.write(f"k = {start} + tl.arange(0, {length})[:, None]")
            b.write(f"n = {unit} + ({columns} // {width}){axis}")
            b.write(f"part = ({columns} % {width}){axis}")
        matrices = [b.program.nodes[index].detail[arg] for index in bundle]
        b.write(f"{name} = {self._weight_loads(matrices, 'load_weights' if in_registers else 'tl.load')}")
        if b.tf32:
            b.write(f"{name} = round_tf32({name})")
        if in_registers:
            b.write(f"{name} = {weights.operand(name)}")
        elif part.wgmma:
            b.write(f"{name} = tl.trans({name})")
        elif b.fragment_loads:
            b.write(f"{name} = {self.value_tile.match_weights(name, count * width)}")

    def _weight_loads(self, matrices: list[MatrixBlock], load: str) -> str:
        """Triton text: one load for all blocks of one parameter; several parameters are loaded in turn and added."""
        b, size, found = self.b, self.b.size, []
        for parameter, flipped in dict.fromkeys((matrix.parameter, matrix.flipped) for matrix in matrices):
            own = {n: one for n, one in enumerate(matrices) if (one.parameter, one.flipped) == (parameter, flipped)}
            p = f"p{b.parameters.index(parameter)}"
            row = _by_part({n: one.row * size for n, one in own.items()})
            column = _by_part({n: one.column * size for n, one in own.items()})
            along_rows, along_columns = ("k", "n") if flipped else ("n", "k")
            # a last column block may be read past H, up to its padding: those inputs are 0, those outputs unused
            padding = parameter in b.matrices and not any(one.column for one in own.values())
            mask = f"({along_rows} < {size}) & ({along_columns} < {b.width if padding else size})"
            if len(own) < len(matrices):
                mask += " & (" + " | ".join(f"(part == {n})" for n in own) + ")"
            address = f"{p} + ({row} + {along_rows}) * {p}_r + {column} + {along_columns}"
            found.append(f"{load}({address}, mask={mask}, other=0.0)")
        return " + ".join(found)

    def _weight_name(self, bundle: list[int], arg: int, tile: int, first: int) -> str:
        return f"w{bundle[0]}_{arg}_{tile}_{first}"

    # one step

    def multiply(self, args: tuple[int, ...], group: list[int]) -> None:
        """All products of the same inputs. As many tiles as there is room for are loaded before the first is used, so
        that their latencies overlap."""
        b = self.b
        tiles = [(arg, tile) for arg in range(len(args)) for tile in range(len(self.k_tiles))]
        longest = max(length for _, length in self.k_tiles)
        together = max(1, READ_WINDOW // (b.part.rows * longest * b.itemsize))
        if b.fragment_loads:
            together = max(1, b.part.loads_in_flight // self.value_tile.loads)
        bundles = _bundles(group)
        for begin in range(0, len(tiles), together):
            window = tiles[begin : begin + together]
            if b.fragment_loads:
                self._load_fragments(args, window)
            for arg, tile in () if b.fragment_loads else window:
                values = self._plain_load(args[arg], *self.k_tiles[tile])
                b.write(f"h{arg}_{tile} = {f'round_tf32({values})' if b.tf32 else values}", 2)
            for bundle in bundles:
                for first, _ in self._unit_blocks():
                    total = f"a{bundle[0]}_{first}"
                    for arg, tile in window:
                        accumulator = f", {total}" if (arg, tile) != (0, 0) else ""
                        operands = self._operands(f"h{arg}_{tile}", self._weight_name(bundle, arg, tile, first))
                        b.write(f'{total} = tl.dot({operands}{accumulator}, input_precision="{b.precision}")', 2)
        for bundle in bundles:
            name = f"a{bundle[0]}_0"
            if b.part.wgmma:
                b.write(f"{name} = tl.trans({name})", 2)
            self._join_blocks(f"a{bundle[0]}", len(bundle))
            if self.split_k > 1:
                self._add_warps(name, b.part.padded_units * len(bundle))
            self._split_columns(name, bundle)
        if b.totals:
            like = next((b.step_input(n) for n, load in enumerate(b.loads) if load[2] == UNITS), "zeros")
            for index in group:
                b.write(f"v{index} = pin_layout(v{index}, {like})", 2)

    def _operands(self, values: str, weight: str) -> str:
        if self.b.fragment_loads:
            return f"{weight}, {values}"
        return f"{weight}, tl.trans({values})" if self.b.part.wgmma else f"{values}, {weight}"

    def _load_fragments(self, args: tuple[int, ...], window: list[tuple[int, int]]) -> None:
        """Tiles of product inputs as mma operands, polled for where that is how programs synchronize."""
        b, pointers, value_tile = self.b, [], self.value_tile
        for arg, tile in window:
            start, length = self.k_tiles[tile]
            k = f"{start} + tile_k"
            edge = b.num_programs * b.part.units if b.st_async else b.width
            if start + length > edge:
                k = f"tl.minimum({k}, {edge - value_tile.per_load})"  # beyond it weights are 0
            pointers.append(self._fragment_address(args[arg], k))
        count = len(pointers)
        if b.st_async:
            lines = spin_loads.plain_loads(count, value_tile, spin_loads.SHARED_LOAD)
        elif b.clustered and not b.polls_sums:  # CLUSTER_BARRIER
            lines = spin_loads.plain_loads(count, value_tile)
        else:  # polls for several values would slow down the stores they wait for
            lines = spin_loads.polling_loads(count, value_tile, probe=len(args) > 1)
        name = f"load{len(args)}_{count}_{value_tile.loads}"  # inputs, tiles, vector loads per thread and tile
        loads = spin_loads.load_function(name, count, value_tile, lines, interpreted(), bool(b.st_async))
        b.functions[name] = loads
        names = [f"h{arg}_{tile}" for arg, tile in window]
        arguments = f"{', '.join(pointers)}, timeout_flag, max_spins, history.dtype.element_ty"
        b.write(f"{', '.join(names)} = {name}({arguments})", 2)
        for one in names:
            operand = value_tile.operand(one)
            b.write(f"{one} = {f'round_tf32({operand})' if b.tf32 else operand}", 2)

    def _fragment_address(self, arg: int, unit: str) -> str:
        """Of what each lane loads. Values of st_async are received where they are needed first."""
        b = self.b
        if not b.st_async:
            return f"{self._input_address(arg)} + tile_row + ({unit})"
        value = b.exchanged.index(arg)
        if arg not in b.received:
            b.received.add(arg)
            b.write(f"inbox{value} = {b.st_async.receive_call(value, 'step')}", 2)
        return f"inbox{value} + {b.st_async.offset('tile_row', unit)}"

    def _plain_load(self, arg: int, start: int, length: int) -> str:
        b = self.b
        if b.num_programs == 1:
            return f"tl.where(unit_mask, {b.broadcast(arg)}, 0.0).to(history.dtype.element_ty)"
        address = self._input_address(arg)
        if self.split_k > 1:
            per_warp, row = length // self.split_k, "row[None, :, :]"
            warp = f"tl.arange(0, {self.split_k})[:, None, None]"
            k = f"({start} + {warp} * {per_warp} + tl.arange(0, {per_warp})[None, None, :])"
        else:
            row, k = "row", f"({start} + tl.arange(0, {length}))[None, :]"
        edge = f", mask={k} < {b.width}, other=0.0" if start + length > b.width else ""
        return f'tl.load({address} + {row} * history_r + {k}{edge}, cache_modifier=".cg")'

    def _input_address(self, arg: int) -> str:
        """Of a product input in `history`; a state was stored by the step before."""
        index = self.b.published_node(arg)
        self.b.polled[index] = None
        return self.b.history_address(index, before=self.b.is_state(arg))

    # after the dots

    def _join_blocks(self, name: str, width: int) -> None:
        """Accumulators of 16 + 8 units as one of 32, (warps, columns, rows), without moving data between threads."""
        part, blocks = self.b.part, self._unit_blocks()
        first, size = blocks[-1]
        last = f"{name}_{first}"
        while size < part.padded_units:
            before = next((f"{name}_{one}" for one, count in blocks if count == size and f"{name}_{one}" != last), "")
            pair = f"{before}, {last}" if before else f"{last}, tl.zeros_like({last})"
            size *= 2
            shape = f"({part.split_k}, {size * width}, {part.rows})"
            last = before or last
            self.b.write(f"{last} = tl.reshape(tl.permute(tl.join({pair}), (0, 3, 1, 2)), {shape})", 2)

    def _add_warps(self, name: str, columns: int) -> None:
        """The sum of the warps' accumulators, pairwise, so that each unit ends up in one thread. tl.sum would leave a
        copy in every warp, and all warps would repeat the rest of the step."""
        b, split_k = self.b, self.split_k
        b.write(f"{name} = tl.permute({name}, {'(2, 1, 0)' if b.fragment_loads else '(1, 2, 0)'})", 2)
        while split_k > 1:
            split_k //= 2
            b.write(f"{name} = tl.reshape({name}, ({b.part.rows}, {columns}, {split_k}, 2))", 2)
            b.write(f"{name}e, {name}o = tl.split({name})", 2)
            b.write(f"{name} = {name}e + {name}o", 2)
        b.write(f"{name} = tl.reshape({name}, ({b.part.rows}, {columns}))", 2)

    def _split_columns(self, name: str, bundle: list[int]) -> None:
        """The products of a bundle from their interleaved columns, by halves."""
        if len(bundle) == 1:
            self.b.write(f"v{bundle[0]} = opaque({name})", 2)
            return
        shape = ", ".join(map(str, (self.b.part.rows, self.b.part.padded_units * len(bundle) // 2, 2)))
        even, odd = f"{name}e", f"{name}o"
        self.b.write(f"{even}, {odd} = tl.split(tl.reshape({name}, ({shape})))", 2)
        self._split_columns(even, bundle[::2])
        self._split_columns(odd, bundle[1::2])


def _by_part(numbers: dict[int, int]) -> str:
    """Triton text: a number for each part of a bundle; an arithmetic progression is written as a product."""
    parts, values = list(numbers), list(numbers.values())
    step = (values[-1] - values[0]) // max(1, parts[-1] - parts[0])
    start = values[0] - parts[0] * step
    if all(value == start + part * step for part, value in numbers.items()):
        return f"{start}" if step == 0 else f"({start} + part * {step})"
    written = f"{values[-1]}"
    for part, value in zip(parts[-2::-1], values[-2::-1], strict=True):
        written = f"tl.where(part == {part}, {value}, {written})"
    return written


def _bundles(group: list[int]) -> list[list[int]]:
    """Products that one dot computes: a power of two each."""
    left = iter(group)
    return [[next(left) for _ in range(count)] for count in powers(len(group))]
