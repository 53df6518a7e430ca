"""How the programs of a group meet, as a kernel writes it, and totals, of which each program brings its share.

They meet at a counter, at the barrier of a cluster, or not at all where numbers are looked at until they are there.
"""

from elman.compiler.triton.cluster_exchange import Post
from elman.compiler.triton.partition import SECTOR
from elman.compiler.triton.schedule import Stage
from elman.compiler.triton.spin_loads import bringing
from elman.compiler.triton.triton_ops import interpreted
from elman.compiler.triton.writer import KernelWriter


class Meeting(KernelWriter):
    # before the loop

    def find_place(self) -> None:
        """Which rows and which units are this program's."""
        if self.near:  # neighbours follow each other
            self.write(f"group = tl.program_id(0) // {self.programs}")
            self.write(f"slot = tl.program_id(0) % {self.programs}")
        else:
            self.write("group = tl.program_id(0)")
            self.write("slot = tl.program_id(1)")

    def prepare_to_meet(self) -> None:
        if self.near:
            self.functions["neighbours"] = self.mailbox.functions()
            self.write("mail = mailbox(slot)")
            self.write(f"local = tl.arange(0, {self.part.rows})[:, None]")
            lanes = 1 << (max(self.part.tile, self.programs) - 1).bit_length()
            self.write(f"whom = tl.arange(0, {lanes})[None, :] + local * 0")
            for stage, count in enumerate(self.mailbox.stages if self.mailed else ()):
                for half in ("mail", f"mail + {self.mailbox.half}"):
                    self.write(f"emptied{count}({self.mailbox.slot(stage, half, 'whom')}, whom)")
            if self.post:
                self.write(f"post = mail + {2 * self.mailbox.half}")
                self.write(f"opened({self.post.barrier(0, '0')})")
            self.write("arrive(slot)")  # nobody writes to one who has not begun
            self.write("depart(slot)")
        elif self.programs > 1:
            self.write("counter = counters + group * 32")
            self.write(f"shares = tl.num_programs(0) * {self.part.rows * self.programs}")

    def prepare_to_bring(self) -> None:
        """Each thread has one of the places that others will look at."""
        if self.bringing:
            self.functions["bring"] = bringing()
            each = min(self.part.tile, 32 * self.part.warps // self.part.rows)
            self.write(f"own = slot * {self.part.units} + tl.arange(0, {each}) * {self.part.tile // each}")
            self.write(f"own = row * history_r + tl.minimum(own, {self.width - 1})[None, :]")

    def prepare_to_bring_given(self) -> None:
        """Where the numbers lie that this program is given, a place for each 32 bytes, and how far apart steps are:
        some thread of all has them brought."""
        if not self.brought:
            return
        self.functions["bring"] = bringing()
        sectors = max(1, self.part.tile * self.itemsize // SECTOR)
        self.write("there = tl.minimum(rows, B - 1).to(tl.int64)[:, None, None]")
        self.write(f"which = tl.arange(0, {1 << (len(self.brought) - 1).bit_length()})[None, :, None]")
        self.write(f"along = slot * {self.part.units * self.itemsize} + tl.arange(0, {sectors}) * {SECTOR}")
        self.write(f"along = tl.minimum(along, {(self.size - 1) * self.itemsize})[None, None, :]")
        for place, number in enumerate(self.brought):
            load = f"load{number}"
            self.write(f"wide = {load}.dtype.element_ty.primitive_bitwidth // 8")
            start = f"{load}.to(tl.int64) + there * {load}_r * wide + along"
            pace = f"tl.cast({load}_t, tl.int64) * wide"
            for name, own in (("given", start), ("pace", pace)):
                chosen = f"tl.where(which < {place}, {name}, {own})" if place else f"{own} + which * 0"
                self.write(f"{name} = {chosen}")

    def bring_given(self) -> None:
        """What is given two steps from here: whoever fetches it then would else wait for it before he can hear."""
        if self.brought:
            self.write(f"bring(given + {self.order.after_next} * pace)", 2)

    def prepare_to_send(self) -> None:
        """Where each of a program's numbers lies in its block; and the states before the first step are sent."""
        if self.post:
            self.write(f"column = tl.arange(0, {self.part.tile})[None, :] + local * 0")
            self.write(f"spot = local * {self.post.row} + column * {self.itemsize}")
            states = {arg: f"s{self.program.nodes[arg].detail[0]}" for arg in self.wanted if self.of_state(arg)}
            self.deliver(self.post, [(arg, state, "0") for arg, state in states.items()], 1)

    # one step

    def send(self, stage: Stage) -> None:
        letters = []
        for arg in self.wanted if self.post else ():
            if self.source(arg) in stage.sent:
                # else some might still be at what was sent two steps ago
                assert not self.of_state(arg) or arg in self.received
                letters.append((arg, self.full(self.source(arg)), "(step + 1)" if self.of_state(arg) else "step"))
        if self.post and letters:
            self.deliver(self.post, letters, 2)

    def deliver(self, post: Post, letters: list[tuple[int, str, str]], depth: int) -> None:
        """Values to all: what takes each, and which time it is sent. Units that only fill up are 0, as their weights
        are: NaN would spread."""
        for arg, value, time in letters:
            clean = value if self.whole() else f"tl.where(inside, {value}, 0.0)"
            place = f"{post.own(self.wanted.index(arg), time)} + spot"
            self.write(f"laid({place}, column, {clean}.to(history.dtype.element_ty))", depth)
            self.write(post.arming(self.wanted.index(arg), time), depth)
        self.write("tl.debug_barrier()", depth)
        for arg, _, time in letters:
            self.write(post.sending(self.wanted.index(arg), time), depth)

    def bring(self) -> None:
        """What is sent two steps from here lies far away until then: there is more of it than the cache holds."""
        if self.bringing:
            self.write(f"soon = {self.order.after_next} - t", 2)
            for index in (index for stage in self.plan.stages for index in stage.sent):
                self.write(f"bring({self.place(index)} + soon * history_t + own)", 2)

    def choose_half(self) -> None:
        if self.near:
            self.write(f"half = mail + step % 2 * {self.mailbox.half}", 2)
            self.write(f"other = mail + (step + 1) % 2 * {self.mailbox.half}", 2)

    def arrive(self, stage: Stage) -> None:
        if self.mailed:
            if stage.begun:
                self.write("half = passed(half)", 2)
        elif stage.meets and self.near:
            self.write("arrive(slot)", 2)
        elif stage.meets and self.counting:
            self.write("tl.debug_barrier()", 2)
            self.write('tl.atomic_add(counter, 1, sem="release", scope="gpu")', 2)

    def depart(self, stage: Stage) -> None:
        if self.mailed:
            return
        if stage.meets and self.near:  # whoever reads a mailbox needs what comes out of the barrier
            self.write("half = depart(half)", 2)
        elif stage.meets and self.counting:
            self.meetings += 1
            target = f"{self.programs} * (step * {self.plan.rounds} + {self.meetings})"
            self.write(f"limit = wait(counter, {target}, limit, alarm)", 2)

    def part_from_neighbours(self) -> None:
        """Whose letters may still be on their way, and whose letters to others too."""
        if self.post:
            for value, arg in enumerate(self.wanted):
                if self.of_state(arg):
                    self.write(self.post.waiting(value, "T"))
            self.write("arrive(slot)")
            self.write("depart(slot)")

    def bring_shares(self, totals: tuple[int, ...]) -> None:
        values = [self.full(self.program.nodes[index].args[0]) for index in totals]
        found = self.summed([f"tl.where(inside, {value}, 0.0)" for value in values])
        if not self.near:
            for index, share in zip(totals, found, strict=True):
                self.write(f"tl.store({self.share(index, 'slot')}, {share})", 2)
        elif totals:
            count, stage = len(totals), self.stage_of(totals)
            shares = ", ".join(f"{share} + whom * 0.0" for share in found)
            self.write(f"tell{count}({self.mailbox.slot(stage, 'half', 'slot')} + whom * 0, whom, {shares})", 2)
            if self.mailed:  # nobody writes there before he has heard of what follows
                self.write(f"emptied{count}({self.mailbox.slot(stage, 'other', 'whom')}, whom)", 2)

    def add_shares(self, totals: tuple[int, ...]) -> None:
        """What all programs found of some totals."""
        if self.near:
            names = ", ".join(f"v{index}" for index in totals)
            place = self.mailbox.slot(self.stage_of(totals), "half", "0")
            self.write(f"{names} = told{len(totals)}({place}, alarm, limit)", 2)
            return
        self.write(f"others = tl.arange(0, {self.lanes})[None, :]", 2)
        loaded = f'tl.load({{}}, mask=others < {self.programs}, other=0.0, cache_modifier=".cg")'
        found = self.summed([loaded.format(self.share(index, "others")) for index in totals])
        for index, whole in zip(totals, found, strict=True):
            self.write(f"v{index} = {whole}", 2)

    @property
    def lanes(self) -> int:
        """As many as programs, or more: a power of two."""
        return 1 << (self.programs - 1).bit_length()

    def stage_of(self, totals: tuple[int, ...]) -> int:
        """Which of the stages that begin totals."""
        return [stage.begun for stage in self.plan.stages if stage.begun].index(totals)

    def share(self, index: int, program: str) -> str:
        """Where a program's share of a total lies: a pointer that moves with time, and places that never do."""
        number = self.totals.index(index)
        return f"partials + (t * {len(self.totals)} + {number}) * shares + rows[:, None] * {self.programs} + {program}"

    def summed(self, values: list[str]) -> list[str]:
        """Sums along rows, made at the same time: the ways between lanes overlap."""
        count = len(values)
        if count < 2 or interpreted():
            return [f"tl.sum({value}, 1)[:, None]" for value in values]
        a, b = ([f"{side}{number}" for number in range(count)] for side in "ab")
        pairs = ", ".join(f"{one} + {other}" for one, other in zip(a, b, strict=True))
        head = f"\n@triton.jit\ndef added{count}({', '.join([*a, *b])}):\n"
        self.functions[f"added{count}"] = f"{head}    return {pairs}\n"
        found = [f"whole{number}" for number in range(count)]
        self.write(f"{', '.join(found)} = tl.reduce(({', '.join(values)}), 1, added{count})", 2)
        return [f"{one}[:, None]" for one in found]
