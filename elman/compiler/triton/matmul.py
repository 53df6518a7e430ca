"""The products of a step, as a kernel writes them: weights stay on the chip, what others sent is read or awaited."""

from elman.compiler.ir import UNITS, MatrixBlock
from elman.compiler.triton.partition import WINDOW, powers
from elman.compiler.triton.spin_loads import NEAR, Grip, Tile, awaited, function, gripping, taken
from elman.compiler.triton.triton_ops import interpreted
from elman.compiler.triton.writer import KernelWriter


class Multiplying(KernelWriter):
    # before the loop

    def resident(self, group: list[int], place: int) -> None:
        """The weights by which one argument reaches some parts: column unit · width + part of each bundle."""
        for bundle in _bundles(group):
            for piece in range(len(self.part.pieces(self.size))):
                for block in self.blocks():
                    self.hold(bundle, place, piece, block)

    def blocks(self) -> list[tuple[int, int]]:
        """Units that are multiplied at once: the first, and how many."""
        sizes = powers(self.part.units)
        return [(sum(sizes[:n]), size) for n, size in enumerate(sizes)]

    def hold(self, bundle: list[int], place: int, piece: int, block: tuple[int, int]) -> None:
        """One piece of weights for one block of units."""
        width, (first, count) = len(bundle), block
        start, length = self.part.pieces(self.size)[piece]
        name = self.weight(bundle, place, piece, first)
        split = self.part.split if self.programs > 1 else 1
        inner, columns = f"tl.arange(0, {length})", f"tl.arange(0, {count * width})"
        here = f"slot * {self.part.units}{f' + {first}' if first else ''}"
        gripped = self.laned and piece < self.part.gripped
        if gripped:
            self.functions["gripped"] = gripping(self.itemsize, interpreted())
            tile = Grip(self.tile(), count * width)
            self.write(f"k = {start} + {tile.inner()}")
            self.write(f"n = {here} + ({tile.columns()}) // {width}")
            self.write(f"part = ({tile.columns()}) % {width}")
        elif split > 1:
            each = length // split
            self.write(f"k = {start} + tl.arange(0, {split})[:, None, None] * {each}")
            self.write(f"k = k + tl.arange(0, {each})[None, :, None]")
            self.write(f"n = {here} + ({columns} // {width})[None, None, :]")
            self.write(f"part = ({columns} % {width})[None, None, :]")
        else:
            self.write(f"k = {start} + {inner}[:, None]")
            self.write(f"n = {here} + ({columns} // {width})[None, :]")
            self.write(f"part = ({columns} % {width})[None, :]")
        matrices = [self.program.nodes[index].detail[place] for index in bundle]
        self.write(f"{name} = {self.loaded(matrices, 'gripped' if gripped else 'tl.load')}")
        if self.rounding:
            self.write(f"{name} = rounded({name})")
        if gripped:
            self.write(f"{name} = {tile.operand(name)}")
        elif self.part.turned:
            self.write(f"{name} = tl.trans({name})")
        elif self.laned:
            self.write(f"{name} = {self.tile().ordered(name, count * width)}")

    def loaded(self, matrices: list[MatrixBlock], load: str) -> str:
        """Blocks of one parameter are one load; those of several are loaded in turn and added."""
        size = self.size
        found = []
        for parameter, flipped in dict.fromkeys((matrix.parameter, matrix.flipped) for matrix in matrices):
            here = {n: one for n, one in enumerate(matrices) if (one.parameter, one.flipped) == (parameter, flipped)}
            p = f"p{self.parameters.index(parameter)}"
            row = _by_part({n: one.row * size for n, one in here.items()})
            column = _by_part({n: one.column * size for n, one in here.items()})
            across, along = ("k", "n") if flipped else ("n", "k")
            # units that pad a row are 0 in what is heard, and nobody takes them from what is made
            edge = self.width if parameter in self.matrices and not any(one.column for one in here.values()) else size
            mask = f"({across} < {size}) & ({along} < {edge})"
            if len(here) < len(matrices):
                mask += " & (" + " | ".join(f"(part == {n})" for n in here) + ")"
            address = f"{p} + ({row} + {across}) * {p}_r + {column} + {along}"
            found.append(f"{load}({address}, mask={mask}, other=0.0)")
        return " + ".join(found)

    def weight(self, bundle: list[int], place: int, piece: int, first: int) -> str:
        return f"w{bundle[0]}_{place}_{piece}_{first}"

    # one step

    def products(self, args: tuple[int, ...], group: list[int]) -> None:
        """All products of the same values. As much as there is room for is read before it is multiplied, so that the
        ways through the cache overlap."""
        split = self.part.split if self.programs > 1 else 1
        pieces = [(place, piece) for place in range(len(args)) for piece in range(len(self.part.pieces(self.size)))]
        longest = max(length for _, length in self.part.pieces(self.size))
        many = max(1, WINDOW // (self.part.rows * longest * self.itemsize))
        if self.laned:
            many = max(1, self.part.at_once // self.tile().looks)
        bundles = _bundles(group)
        for begin in range(0, len(pieces), many):
            window = pieces[begin : begin + many]
            if self.laned:
                self.look(args, window)
            for place, piece in () if self.laned else window:
                start, length = self.part.pieces(self.size)[piece]
                heard = self.heard(args[place], start, length, split)
                self.write(f"h{place}_{piece} = {f'rounded({heard})' if self.rounding else heard}", 2)
            for bundle in bundles:
                for first, _ in self.blocks():
                    total = f"a{bundle[0]}_{first}"
                    for place, piece in window:
                        before = f", {total}" if (place, piece) != (0, 0) else ""
                        operands = self.operands(f"h{place}_{piece}", self.weight(bundle, place, piece, first))
                        self.write(f'{total} = tl.dot({operands}{before}, input_precision="{self.precision}")', 2)
        for bundle in bundles:
            name = f"a{bundle[0]}_0"
            if self.part.turned:
                self.write(f"{name} = tl.trans({name})", 2)
            self.fill_up(f"a{bundle[0]}", len(bundle))
            if split > 1:
                self.gather(name, split, self.part.tile * len(bundle))
            self.take_apart(name, bundle)
        if self.totals:
            like = next((self.given(n) for n, load in enumerate(self.loads) if load[2] == UNITS), "blank")
            for index in group:
                self.write(f"v{index} = settled(v{index}, {like})", 2)

    def fill_up(self, name: str, width: int) -> None:
        """Blocks of units as one tensor that has room for all, (warps, columns, rows): no number changes hands."""
        blocks = self.blocks()
        first, size = blocks[-1]
        last = f"{name}_{first}"
        while size < self.part.tile:
            before = next((f"{name}_{one}" for one, count in blocks if count == size and f"{name}_{one}" != last), "")
            pair = f"{before}, {last}" if before else f"{last}, tl.zeros_like({last})"
            size *= 2
            shape = f"({self.part.split}, {size * width}, {self.part.rows})"
            last = before or last
            self.write(f"{last} = tl.reshape(tl.permute(tl.join({pair}), (0, 3, 1, 2)), {shape})", 2)

    def operands(self, heard: str, weight: str) -> str:
        if self.laned:
            return f"{weight}, {heard}"
        return f"{weight}, tl.trans({heard})" if self.part.turned else f"{heard}, {weight}"

    def look(self, args: tuple[int, ...], window: list[tuple[int, int]]) -> None:
        """Pieces of what others sent, as operands of products."""
        asked, tile = [], self.tile()
        for place, piece in window:
            start, length = self.part.pieces(self.size)[piece]
            k = f"{start} + inner"
            edge = self.programs * self.part.units if self.post else self.width
            if start + length > edge:
                k = f"tl.minimum({k}, {edge - tile.each})"  # beyond, weights are 0
            asked.append(self.whereabouts(args[place], k))
        if self.post:
            lines = taken(len(asked), tile, NEAR)
        elif self.near and not self.mailed:
            lines = taken(len(asked), tile)
        else:
            # several values are so much to ask for that those who write them would wait
            lines = awaited(len(asked), tile, scouting=len(args) > 1)
        name = f"hear{len(args)}_{len(asked)}_{tile.looks}"
        self.functions[name] = function(name, len(asked), tile, lines, interpreted(), bool(self.post))
        names = [f"h{place}_{piece}" for place, piece in window]
        self.write(f"{', '.join(names)} = {name}({', '.join(asked)}, alarm, limit, history.dtype.element_ty)", 2)
        for one in names:
            heard = tile.operand(one)
            self.write(f"{one} = {f'rounded({heard})' if self.rounding else heard}", 2)

    def tile(self) -> Tile:
        length = self.part.pieces(self.size)[0][1]
        return Tile(self.part.rows, length, self.part.split, self.itemsize)

    def heard(self, arg: int, start: int, length: int, split: int) -> str:
        if self.programs == 1:
            return f"tl.where(inside, {self.full(arg)}, 0.0).to(history.dtype.element_ty)"
        place = self.sent(arg)
        if split > 1:
            each = length // split
            row = "row[None, :, :]"
            k = f"({start} + tl.arange(0, {split})[:, None, None] * {each} + tl.arange(0, {each})[None, None, :])"
        else:
            row, k = "row", f"({start} + tl.arange(0, {length}))[None, :]"
        edge = f", mask={k} < {self.width}, other=0.0" if start + length > self.width else ""
        return f'tl.load({place} + {row} * history_r + {k}{edge}, cache_modifier=".cg")'

    def whereabouts(self, arg: int, unit: str) -> str:
        """Of what a lane takes. What comes by post is waited for where it is needed first."""
        if not self.post:
            return f"{self.sent(arg)} + outer + ({unit})"
        value = self.wanted.index(arg)
        if arg not in self.received:
            self.received.add(arg)
            self.write(f"box{value} = {self.post.waiting(value, 'step')}", 2)
        return f"box{value} + {self.post.within('outer', unit)}"

    def sent(self, arg: int) -> str:
        """Where what a product takes was stored: a state by the step before."""
        index = self.source(arg)
        self.awaited[index] = None
        return self.place(index, before=self.of_state(arg))

    def gather(self, name: str, split: int, columns: int) -> None:
        """The sum of the warps' shares, by halves, after which one thread has each unit. After `tl.sum` a thread of
        every warp would have it, and all of them would compute the same from there on."""
        self.write(f"{name} = tl.permute({name}, {'(2, 1, 0)' if self.laned else '(1, 2, 0)'})", 2)
        while split > 1:
            split //= 2
            self.write(f"{name} = tl.reshape({name}, ({self.part.rows}, {columns}, {split}, 2))", 2)
            self.write(f"{name}e, {name}o = tl.split({name})", 2)
            self.write(f"{name} = {name}e + {name}o", 2)
        self.write(f"{name} = tl.reshape({name}, ({self.part.rows}, {columns}))", 2)

    def take_apart(self, name: str, bundle: list[int]) -> None:
        """The parts of a bundle, whose columns lie in turn: halves of halves."""
        if len(bundle) == 1:
            self.write(f"v{bundle[0]} = apart({name})", 2)
            return
        shape = ", ".join(map(str, (self.part.rows, self.part.tile * len(bundle) // 2, 2)))
        even, odd = f"{name}e", f"{name}o"
        self.write(f"{even}, {odd} = tl.split(tl.reshape({name}, ({shape})))", 2)
        self.take_apart(even, bundle[::2])
        self.take_apart(odd, bundle[1::2])


def _by_part(numbers: dict[int, int]) -> str:
    """A number for each part of a bundle; those in equal distances are written as a product."""
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
    """Parts that one matrix product makes together."""
    left = iter(group)
    return [[next(left) for _ in range(count)] for count in powers(len(group))]
