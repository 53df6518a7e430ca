"""A unit program as the source of a Triton kernel that stays on the chip for a whole sequence.

Program (group, slice) computes some units of some rows, step after step. Its weights are loaded once; what is given at
the next step is fetched while others are waited for; what others need lies in `history`, a place for each stored node
at each step, so nothing is ever overwritten. Own state and all sums are float32.
"""

from typing import NamedTuple

from elman.compiler.ir import CONSTANT, ROW
from elman.compiler.triton.matmul import Multiplying
from elman.compiler.triton.schedule import Stage
from elman.compiler.triton.sync import Meeting
from elman.compiler.triton.triton_ops import head, interpreted


class Emitted(NamedTuple):
    """The source of a module with `kernel`, and the order in which the kernel takes what it needs."""

    source: str
    loads: tuple[tuple[str, int, str], ...]
    parameters: tuple[str, ...]
    stored: tuple[int, ...]
    awaited: tuple[int, ...]  # stored nodes that are looked at until they are there
    totals: int
    rounds: int


class Emitter(Multiplying, Meeting):
    def emitted(self) -> Emitted:
        self.before()
        self.step()
        self.after()
        source = (
            head(self.itemsize, self.rounding, self.part.poll)
            + "\n".join(self.functions.values())
            + self.signature()
            + "\n".join(self.lines)
            + "\n"
        )
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
        states = range(len(self.program.next_state))
        names += [f"initial{number}{end}" for number in states for end in (*pointers, "_r")]
        names += [f"load{number}{end}" for number in range(len(self.loads)) for end in (*pointers, "_t", "_r")]
        still = '@triton.jit(do_not_specialize=["T", "B", "limit"])'
        return f"\n{still}\ndef kernel(\n    " + ",\n    ".join(names) + ",\n):\n"

    # before the loop

    def before(self) -> None:
        rows, units, tile, size = self.part.rows, self.part.units, self.part.tile, self.size
        self.find_place()
        if self.both:
            self.part_ways()
        self.write(f"rows = group * {rows} + tl.arange(0, {rows})")
        self.write(f"units = slot * {units} + tl.arange(0, {tile})")
        self.write("real = rows < B")
        self.write(f"inside = (units < tl.minimum({size}, (slot + 1) * {units}))[None, :]")
        self.write("owned = real[:, None] & inside")
        self.write("row = rows.to(tl.int64)[:, None]")
        self.write("unit = units[None, :]")
        self.write(f"pair = slot * {units // 2} + tl.arange(0, {tile // 2})[None, :]")
        self.write(f"both = real[:, None] & (pair < tl.minimum({size}, (slot + 1) * {units}) // 2)")
        self.write(f"blank = tl.zeros(({rows}, {tile}), tl.float32)")
        if any(node.op == "active" for node in self.program.nodes):
            self.write("length = tl.load(lengths + rows, mask=real, other=0)[:, None]")
        for index, node in enumerate(self.program.nodes):
            if node.op == "vector":
                name = self.parameters.index(node.detail[0])
                address = f"p{name} + {node.detail[1] * size} + units"
                self.write(f"v{index} = tl.load({address}, mask=units < {size}, other=0.0)[None, :].to(tl.float32)")
        for args, group in self.groups.items():
            for place in range(len(args)):
                self.resident(group, place)
        for number in range(len(self.program.next_state)):
            address = f"initial{number} + row * initial{number}_r + unit"
            self.write(f"s{number} = tl.load({address}, mask=owned, other=0.0).to(tl.float32)")
        for number in range(len(self.program.accumulated)):
            self.write(f"sum{number} = blank")
        for number in range(len(self.loads)):
            self.write(f"x{number} = {self.fetch(number, 'tl.cast(' + self.order.first + ', tl.int64)')}")
        if self.laned and self.groups:
            self.write(f"outer = {self.tile().outer()}")
            if not self.post:
                self.write(f"outer = (group * {rows} + outer).to(tl.int64) * history_r")
            self.write(f"inner = {self.tile().inner()}")
        self.prepare_to_meet()
        self.prepare_to_bring()
        self.prepare_to_bring_given()
        self.prepare_to_send()

    def part_ways(self) -> None:
        """From here on each way sees only what is its own; all that is written lies in one piece, way after way."""
        self.write("way = tl.program_id(2)")
        self.write(f"up = {'way' if self.down else '1 - way'}")
        self.write("if way == 1:")
        for name, count in (("p", self.parameters), ("initial", self.program.next_state), ("load", self.loads)):
            for number in range(len(count)):
                self.write(f"{name}{number} = {name}{number}_back", 2)
        shares = f"{len(self.totals) * self.part.rows * self.programs} * tl.num_programs(0)"
        self.write("far = way.to(tl.int64)")
        self.write("history += far * history_w")
        self.write(f"partials += far * T * ({shares})")
        self.write(f"final += far * B * {len(self.program.next_state) * self.size}")
        self.write(f"sums += far * B * {len(self.program.accumulated) * self.size}")
        self.write("counters += way * tl.num_programs(0) * 32")

    def fetch(self, number: int, time: str) -> str:
        name = f"load{number}"
        if self.loads[number][2] == ROW:
            return f"tl.load({name} + rows.to(tl.int64) * {name}_r + {time} * {name}_t, mask=real, other=0.0)[:, None]"
        return f"fetched({name}, row * {name}_r + {time} * {name}_t, unit, pair, owned, both)"

    # one step

    def step(self) -> None:
        self.write("for step in range(T):")
        # rows of many steps have more numbers than 32 bits count
        self.write(f"t = tl.cast({self.order.current}, tl.int64)", 2)
        self.choose_half()
        last = max((number for number, stage in enumerate(self.plan.stages) if stage.meets), default=-1)
        if last < 0:
            self.ahead()
        for number, stage in enumerate(self.plan.stages):
            if number and self.plan.stages[number - 1].begun:
                self.add_shares(self.plan.stages[number - 1].begun)
            self.stage(stage, prefetch=number == last)
        for number, index in enumerate(self.program.accumulated):
            self.write(f"sum{number} += {self.full(index)}", 2)
        for number, index in enumerate(self.program.next_state):
            self.write(f"s{number} = {self.full(index)}", 2)
        for number in range(len(self.loads)):
            self.write(f"x{number} = y{number}", 2)

    def ahead(self) -> None:
        """What the next step is given; after the last step the same is fetched once more, which hurts nobody."""
        self.write(f"later = {self.order.next}", 2)
        for number in range(len(self.loads)):
            self.write(f"y{number} = {self.fetch(number, 'later')}", 2)
        self.bring()
        self.bring_given()

    def stage(self, stage: Stage, prefetch: bool) -> None:
        nodes = self.program.nodes
        # nobody may send who has not heard what was sent before
        sooner = [index for index in stage.rest if self.post and stage.sent and nodes[index].op == "matmul"]
        for index in (*stage.first, *sooner):
            self.node(index)
        self.send(stage)
        for index in stage.sent:
            self.store(index)
        self.bring_shares(stage.begun)
        self.arrive(stage)
        if prefetch:
            self.ahead()
        for index in stage.rest:
            if index not in sooner:
                self.node(index)
        for index in stage.kept:
            self.store(index)
        self.depart(stage)

    def node(self, index: int) -> None:
        node = self.program.nodes[index]
        if node.op in ("vector", "constant"):
            return
        if node.op == "load":
            self.write(f"v{index} = {self.given(self.loads.index(node.detail))}", 2)
        elif node.op == "state":
            self.write(f"v{index} = s{node.detail[0]}", 2)
        elif node.op == "active":
            self.write(f"v{index} = t < length", 2)
        elif node.op == "broadcast":
            self.write(f"v{index} = {self.full(node.args[0])}", 2)
        elif node.op == "sum":
            self.total(index)
        elif node.op == "matmul":
            if index == self.groups[node.args][0]:
                self.products(node.args, self.groups[node.args])
        elif self.kinds[index] != CONSTANT:
            values = [self.value(arg) for arg in node.args]
            self.write(f"v{index} = {self.words[node.op].format(*values)}", 2)

    def store(self, index: int) -> None:
        mask = "" if self.whole() else ", mask=inside & (blank == 0.0)"
        value = f"{self.full(index)}.to(history.dtype.element_ty)"
        self.write(f"tl.store({self.place(index)} + row * history_r + unit, {value}{mask})", 2)

    def total(self, index: int) -> None:
        if self.programs == 1:
            values = f"tl.where(inside, {self.full(self.program.nodes[index].args[0])}, 0.0)"
            self.write(f"v{index} = tl.sum({values}, 1)[:, None]", 2)

    # after the loop

    def after(self) -> None:
        self.part_from_neighbours()
        for number in range(len(self.program.next_state)):
            address = f"final + ({number} * B + row) * {self.size} + unit"
            self.write(f"tl.store({address}, s{number}, mask=owned)")
        for number in range(len(self.program.accumulated)):
            address = f"sums + ({number} * B + row) * {self.size} + unit"
            self.write(f"tl.store({address}, sum{number}, mask=owned)")
