"""A unit program as the source of a Triton kernel that stays on the chip for a whole sequence.

Program (group, slice) computes some units of some rows, step after step. Its weights are loaded once; what is given at
the next step is fetched while others are waited for; what others need lies in `history`, a place for each stored node
at each step, so nothing is ever overwritten. Own state and all sums are float32.
"""

import os
from typing import NamedTuple

from elman.ops.recurrence.evaluating import settled
from elman.ops.recurrence.hearing import AT_ONCE, WIDE, Tile, function
from elman.ops.recurrence.order import BOTH, DOWN, UP
from elman.ops.recurrence.partition import WINDOW, Partition, padded, powers
from elman.ops.recurrence.schedule import Schedule, Stage, schedule
from elman.ops.recurrence.units import CONSTANT, ROW, UNITS, Matrix, Program
from elman.ops.recurrence.words import ACQUIRE, ADD_NOTHING, EXACT, HEAD, QUICK, ROUNDED, SETTLED, WRITTEN


class Emitted(NamedTuple):
    """The source of a module with `kernel`, and the order in which the kernel takes what it needs."""

    source: str
    loads: tuple[tuple[str, int, str], ...]
    parameters: tuple[str, ...]
    stored: tuple[int, ...]
    awaited: tuple[int, ...]  # stored nodes that are looked at until they are there
    totals: int
    rounds: int


def emit(
    program: Program,
    kept: tuple[int, ...],
    part: Partition,
    itemsize: int,
    precision: str,
    down: bool,
    both: bool = False,
) -> Emitted:
    """`kept`: nodes to store besides those that are sent. `itemsize`: bytes of a number in products and histories.
    `precision`: of products in float32. `down`: from the last step to the first. `both`: a second way in the same
    launch, with weights, state and loads of its own, that takes the steps in the opposite order."""
    return _Emitter(program, kept, part, itemsize, precision, down, both).emitted()


def interpreted() -> bool:
    """Whether Triton runs kernels as plain Python, which needs no GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


class _Emitter:
    def __init__(
        self,
        program: Program,
        kept: tuple[int, ...],
        part: Partition,
        itemsize: int,
        precision: str,
        down: bool,
        both: bool,
    ):
        self.program, self.part, self.precision, self.down, self.both = program, part, precision, down, both
        self.order = BOTH if both else DOWN if down else UP
        self.itemsize = itemsize
        self.rounding = itemsize == 4 and precision == "tf32"
        self.kinds = program.kinds()
        self.size, self.width = program.size, padded(program.size)
        self.programs = part.programs(program.size)
        self.plan: Schedule = schedule(program, kept, alone=self.programs == 1)
        nodes = program.nodes
        self.loads = tuple(node.detail for node in nodes if node.op == "load")
        named = [node.detail[0] for node in nodes if node.op == "vector"]
        named += [matrix.parameter for node in nodes if node.op == "product" for matrix in node.detail]
        self.parameters = tuple(dict.fromkeys(named))
        self.matrices = program.matrices()
        self.totals = [index for index, node in enumerate(nodes) if node.op == "total"]
        self.groups: dict[tuple[int, ...], list[int]] = {}
        for index, node in enumerate(nodes):
            if node.op == "product":
                self.groups.setdefault(node.args, []).append(index)
        self.lines: list[str] = []
        self.meetings = 0
        self.looking = part.poll == "data" and self.programs > 1
        self.functions: dict[str, str] = {}
        self.awaited: dict[int, None] = {}

    def write(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def emitted(self) -> Emitted:
        head = HEAD.format(
            settled="x" if interpreted() else SETTLED,
            rounded="x" if interpreted() or not self.rounding else ROUNDED,
            tanh=EXACT if self.itemsize > 2 else QUICK,
            arrived=ACQUIRE if self.part.poll == "load" else ADD_NOTHING,
        )
        self.before()
        self.step()
        self.after()
        source = head + "\n".join(self.functions.values()) + self.signature() + "\n".join(self.lines) + "\n"
        awaited = tuple(self.awaited)
        rest = len(self.totals), self.plan.rounds
        return Emitted(source, self.loads, self.parameters, self.plan.stored, awaited, *rest)

    def signature(self) -> str:
        # the interpreter of some versions cannot loop to a number that it was given as an argument
        names = ["T: tl.constexpr" if interpreted() else "T", "B", "limit", "counters", "alarm", "lengths"]
        names += ["history", "history_t", "history_r", "history_p", "partials", "final", "sums"]
        pointers = ("", "_back") if self.both else ("",)
        names += ["history_w"] if self.both else []
        names += [f"p{number}{end}" for number in range(len(self.parameters)) for end in (*pointers, "_r")]
        states = range(len(self.program.carried))
        names += [f"initial{number}{end}" for number in states for end in (*pointers, "_r")]
        names += [f"load{number}{end}" for number in range(len(self.loads)) for end in (*pointers, "_t", "_r")]
        still = '@triton.jit(do_not_specialize=["T", "B", "limit"])'
        return f"\n{still}\ndef kernel(\n    " + ",\n    ".join(names) + ",\n):\n"

    # before the loop

    def before(self) -> None:
        rows, units, size = self.part.rows, self.part.units, self.size
        self.write("group = tl.program_id(0)")
        self.write("slot = tl.program_id(1)")
        if self.both:
            self.part_ways()
        self.write(f"rows = group * {rows} + tl.arange(0, {rows})")
        self.write(f"units = slot * {units} + tl.arange(0, {units})")
        self.write("real = rows < B")
        self.write(f"inside = (units < {size})[None, :]")
        self.write("owned = real[:, None] & inside")
        self.write("row = rows.to(tl.int64)[:, None]")
        self.write("unit = units[None, :]")
        self.write(f"blank = tl.zeros(({rows}, {units}), tl.float32)")
        if any(node.op == "going" for node in self.program.nodes):
            self.write("length = tl.load(lengths + rows, mask=real, other=0)[:, None]")
        for index, node in enumerate(self.program.nodes):
            if node.op == "vector":
                name = self.parameters.index(node.detail[0])
                address = f"p{name} + {node.detail[1] * size} + units"
                self.write(f"v{index} = tl.load({address}, mask=units < {size}, other=0.0)[None, :].to(tl.float32)")
        for args, group in self.groups.items():
            for place in range(len(args)):
                self.resident(group, place)
        for number in range(len(self.program.carried)):
            address = f"initial{number} + row * initial{number}_r + unit"
            self.write(f"s{number} = tl.load({address}, mask=owned, other=0.0).to(tl.float32)")
        for number in range(len(self.program.summed)):
            self.write(f"sum{number} = blank")
        for number in range(len(self.loads)):
            self.write(f"x{number} = {self.fetch(number, 'tl.cast(' + self.order.first + ', tl.int64)')}")
        if self.looking and self.groups:
            self.write(f"outer = ({self.tile().outer()}).to(tl.int64) * history_r")
            self.write(f"inner = {self.tile().inner()}")
        if self.programs > 1:
            self.write("counter = counters + group * 32")
            self.write(f"shares = tl.num_programs(0) * {self.part.rows * self.programs}")

    def part_ways(self) -> None:
        """From here on each way sees only what is its own; all that is written lies in one piece, way after way."""
        self.write("way = tl.program_id(2)")
        self.write(f"up = {'way' if self.down else '1 - way'}")
        self.write("if way == 1:")
        for name, count in (("p", self.parameters), ("initial", self.program.carried), ("load", self.loads)):
            for number in range(len(count)):
                self.write(f"{name}{number} = {name}{number}_back", 2)
        shares = f"{len(self.totals) * self.part.rows * self.programs} * tl.num_programs(0)"
        self.write("far = way.to(tl.int64)")
        self.write("history += far * history_w")
        self.write(f"partials += far * T * ({shares})")
        self.write(f"final += far * B * {len(self.program.carried) * self.size}")
        self.write(f"sums += far * B * {len(self.program.summed) * self.size}")
        self.write("counters += way * tl.num_programs(0) * 32")

    def fetch(self, number: int, time: str) -> str:
        name = f"load{number}"
        if self.loads[number][2] == ROW:
            return f"tl.load({name} + rows.to(tl.int64) * {name}_r + {time} * {name}_t, mask=real, other=0.0)[:, None]"
        return f"tl.load({name} + row * {name}_r + {time} * {name}_t + unit, mask=owned, other=0.0)"

    def resident(self, group: list[int], place: int) -> None:
        """The weights by which one argument reaches some parts: column unit · width + part of each bundle."""
        units, size = self.part.units, self.size
        for bundle in _bundles(group):
            width = len(bundle)
            for piece, (start, length) in enumerate(self.part.pieces(size)):
                name = self.weight(bundle, place, piece)
                split = self.part.split if self.programs > 1 else 1
                inner, columns = f"tl.arange(0, {length})", f"tl.arange(0, {units * width})"
                if split > 1:
                    each = length // split
                    self.write(f"k = {start} + tl.arange(0, {split})[:, None, None] * {each}")
                    self.write(f"k = k + tl.arange(0, {each})[None, :, None]")
                    self.write(f"n = slot * {units} + ({columns} // {width})[None, None, :]")
                    self.write(f"part = ({columns} % {width})[None, None, :]")
                else:
                    self.write(f"k = {start} + {inner}[:, None]")
                    self.write(f"n = slot * {units} + ({columns} // {width})[None, :]")
                    self.write(f"part = ({columns} % {width})[None, :]")
                self.write(f"{name} = {self.loaded([self.program.nodes[index].detail[place] for index in bundle])}")
                if self.rounding:
                    self.write(f"{name} = rounded({name})")
                if self.part.turned:
                    self.write(f"{name} = tl.trans({name})")
                elif self.looking:
                    self.write(f"{name} = {self.tile().ordered(name, units * width)}")

    def loaded(self, matrices: list[Matrix]) -> str:
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
            found.append(f"tl.load({address}, mask={mask}, other=0.0)")
        return " + ".join(found)

    def weight(self, bundle: list[int], place: int, piece: int) -> str:
        return f"w{bundle[0]}_{place}_{piece}"

    # one step

    def step(self) -> None:
        self.write("for step in range(T):")
        # rows of many steps have more numbers than 32 bits count
        self.write(f"t = tl.cast({self.order.now}, tl.int64)", 2)
        last = max((number for number, stage in enumerate(self.plan.stages) if stage.meets), default=-1)
        if last < 0:
            self.ahead()
        for number, stage in enumerate(self.plan.stages):
            if number and self.plan.stages[number - 1].begun:
                self.add_shares(self.plan.stages[number - 1].begun)
            self.stage(stage, prefetch=number == last)
        for number, index in enumerate(self.program.summed):
            self.write(f"sum{number} += {self.full(index)}", 2)
        for number, index in enumerate(self.program.carried):
            self.write(f"s{number} = {self.full(index)}", 2)
        for number in range(len(self.loads)):
            self.write(f"x{number} = y{number}", 2)

    def ahead(self) -> None:
        """What the next step is given; after the last step the same is fetched once more, which hurts nobody."""
        self.write(f"later = {self.order.later}", 2)
        for number in range(len(self.loads)):
            self.write(f"y{number} = {self.fetch(number, 'later')}", 2)

    def stage(self, stage: Stage, prefetch: bool) -> None:
        for index in stage.first:
            self.node(index)
        for index in stage.sent:
            self.store(index)
        for index in stage.begun:
            share = f"tl.sum(tl.where(inside, {self.full(self.program.nodes[index].args[0])}, 0.0), 1)[:, None]"
            self.write(f"tl.store({self.share(index, 'slot')}, {share})", 2)
        if stage.meets and not self.looking:
            self.write("tl.debug_barrier()", 2)
            self.write('tl.atomic_add(counter, 1, sem="release", scope="gpu")', 2)
        if prefetch:
            self.ahead()
        for index in stage.rest:
            self.node(index)
        for index in stage.kept:
            self.store(index)
        if stage.meets and not self.looking:
            self.meetings += 1
            target = f"{self.programs} * (step * {self.plan.rounds} + {self.meetings})"
            self.write(f"limit = wait(counter, {target}, limit, alarm)", 2)

    def node(self, index: int) -> None:
        node = self.program.nodes[index]
        if node.op in ("vector", "constant"):
            return
        if node.op == "load":
            self.write(f"v{index} = x{self.loads.index(node.detail)}.to(tl.float32)", 2)
        elif node.op == "state":
            self.write(f"v{index} = s{node.detail[0]}", 2)
        elif node.op == "going":
            self.write(f"v{index} = t < length", 2)
        elif node.op == "spread":
            self.write(f"v{index} = {self.full(node.args[0])}", 2)
        elif node.op == "total":
            self.total(index)
        elif node.op == "product":
            if index == self.groups[node.args][0]:
                self.products(node.args, self.groups[node.args])
        elif self.kinds[index] != CONSTANT:
            values = [self.value(arg) for arg in node.args]
            self.write(f"v{index} = {WRITTEN[node.op].format(*values)}", 2)

    def value(self, index: int) -> str:
        return _literal(self.program, index) if self.kinds[index] == CONSTANT else f"v{index}"

    def full(self, index: int) -> str:
        return self.value(index) if self.kinds[index] == UNITS else f"({self.value(index)} + blank)"

    def place(self, index: int, before: bool = False) -> str:
        """Where a stored node lies: a state beside its step, on the side that is walked to; else at it."""
        beside = self.order.before if before else self.order.after
        moved = beside if index in self.program.carried else "t"
        return f"history + {moved} * history_t + {self.plan.stored.index(index)} * history_p"

    def store(self, index: int) -> None:
        mask = "" if self.size % self.part.units == 0 else ", mask=inside & (blank == 0.0)"
        value = f"{self.full(index)}.to(history.dtype.element_ty)"
        self.write(f"tl.store({self.place(index)} + row * history_r + unit, {value}{mask})", 2)

    def share(self, index: int, program: str) -> str:
        """Where a program's share of a total lies: a pointer that moves with time, and places that never do."""
        number = self.totals.index(index)
        return f"partials + (t * {len(self.totals)} + {number}) * shares + rows[:, None] * {self.programs} + {program}"

    def total(self, index: int) -> None:
        if self.programs == 1:
            values = f"tl.where(inside, {self.full(self.program.nodes[index].args[0])}, 0.0)"
            self.write(f"v{index} = tl.sum({values}, 1)[:, None]", 2)

    def add_shares(self, totals: tuple[int, ...]) -> None:
        """What all programs found of some totals."""
        many = 1 << (self.programs - 1).bit_length()
        self.write(f"others = tl.arange(0, {many})[None, :]", 2)
        for index in totals:
            address, mask = self.share(index, "others"), f"others < {self.programs}"
            value = f'tl.load({address}, mask={mask}, other=0.0, cache_modifier=".cg")'
            self.write(f"v{index} = tl.sum({value}, 1)[:, None]", 2)

    def tile(self) -> Tile:
        length = self.part.pieces(self.size)[0][1]
        return Tile(self.part.rows, length, self.part.split, self.itemsize)

    def look(self, args: tuple[int, ...], window: list[tuple[int, int]]) -> None:
        """Pieces of what others sent, as operands of products."""
        asked, names = [], []
        for place, piece in window:
            start, length = self.part.pieces(self.size)[piece]
            k = f"{start} + inner"
            if start + length > self.width:
                k = f"tl.minimum({k}, {self.width - self.tile().each})"  # beyond, weights are 0
            asked.append(f"{self.sent(args[place])} + outer + ({k})")
            names += [f"u{place}_{piece}_{word}" for word in range(WIDE)]
        looks = self.tile().looks
        name = f"hear{len(args)}_{len(asked)}_{looks}"
        scouting = len(args) > 1  # several values are so much to ask for that those who write them would wait
        self.functions[name] = function(name, len(asked), looks, self.itemsize == 2, scouting, interpreted())
        self.write(f"{', '.join(names)} = {name}({', '.join(asked)}, alarm, limit)", 2)
        for place, piece in window:
            words = ", ".join(f"u{place}_{piece}_{word}" for word in range(WIDE))
            self.write(f"h{place}_{piece} = whole({words}, history.dtype.element_ty)", 2)

    def products(self, args: tuple[int, ...], group: list[int]) -> None:
        """All products of the same values. As much as there is room for is read before it is multiplied, so that the
        ways through the cache overlap."""
        split = self.part.split if self.programs > 1 else 1
        pieces = [(place, piece) for place in range(len(args)) for piece in range(len(self.part.pieces(self.size)))]
        longest = max(length for _, length in self.part.pieces(self.size))
        many = max(1, WINDOW // (self.part.rows * longest * self.itemsize))
        if self.looking:
            self.functions["whole"] = self.tile().whole()
            many = max(1, AT_ONCE // self.tile().looks)
        bundles = _bundles(group)
        for begin in range(0, len(pieces), many):
            window = pieces[begin : begin + many]
            if self.looking:
                self.look(args, window)
            for place, piece in () if self.looking else window:
                start, length = self.part.pieces(self.size)[piece]
                heard = self.heard(args[place], start, length, split)
                self.write(f"h{place}_{piece} = {f'rounded({heard})' if self.rounding else heard}", 2)
            for bundle in bundles:
                total = f"a{bundle[0]}"
                for place, piece in window:
                    before = f", {total}" if (place, piece) != (0, 0) else ""
                    heard, weight = f"h{place}_{piece}", self.weight(bundle, place, piece)
                    operands = f"{weight}, tl.trans({heard})" if self.part.turned else f"{heard}, {weight}"
                    self.write(f'{total} = tl.dot({operands}{before}, input_precision="{self.precision}")', 2)
        for bundle in bundles:
            if self.part.turned:
                self.write(f"a{bundle[0]} = tl.trans(a{bundle[0]})", 2)
            if split > 1:
                self.gather(f"a{bundle[0]}", split, self.part.units * len(bundle))
            self.take_apart(f"a{bundle[0]}", bundle)

    def gather(self, name: str, split: int, columns: int) -> None:
        """The sum of the warps' shares, by halves, after which one thread has each unit. After `tl.sum` a thread of
        every warp would have it, and all of them would compute the same from there on."""
        self.write(f"{name} = tl.permute({name}, (1, 2, 0))", 2)
        while split > 1:
            split //= 2
            self.write(f"{name} = tl.reshape({name}, ({self.part.rows}, {columns}, {split}, 2))", 2)
            self.write(f"{name}e, {name}o = tl.split({name})", 2)
            self.write(f"{name} = {name}e + {name}o", 2)
        self.write(f"{name} = tl.reshape({name}, ({self.part.rows}, {columns}))", 2)

    def sent(self, arg: int) -> str:
        """Where what a product takes was stored: a state by the step before."""
        node = self.program.nodes[arg]
        index = self.program.carried[node.detail[0]] if node.op == "state" else arg
        self.awaited[index] = None
        return self.place(index, before=node.op == "state")

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

    def take_apart(self, name: str, bundle: list[int]) -> None:
        """The parts of a bundle, whose columns lie in turn: halves of halves."""
        if len(bundle) == 1:
            self.write(f"v{bundle[0]} = {f'settled({name})' if self.totals else name}", 2)
            return
        shape = ", ".join(map(str, (self.part.rows, self.part.units * len(bundle) // 2, 2)))
        even, odd = f"{name}e", f"{name}o"
        self.write(f"{even}, {odd} = tl.split(tl.reshape({name}, ({shape})))", 2)
        self.take_apart(even, bundle[::2])
        self.take_apart(odd, bundle[1::2])

    # after the loop

    def after(self) -> None:
        for number in range(len(self.program.carried)):
            address = f"final + ({number} * B + row) * {self.size} + unit"
            self.write(f"tl.store({address}, s{number}, mask=owned)")
        for number in range(len(self.program.summed)):
            address = f"sums + ({number} * B + row) * {self.size} + unit"
            self.write(f"tl.store({address}, sum{number}, mask=owned)")


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


def _literal(program: Program, index: int) -> str:
    """The number that a constant node is."""
    value = settled(program, index)
    return repr(value) if abs(value) < 1e300 else f"float('{value}')"
