"""A step as loops over units: where each value is made when one processor owns all units of its rows.

Products need all rows' values, totals all units' of a row, so both end a loop: a phase is one loop over the units of
a row, and a stage is what lies between products. Products, totals and results come as early as they can, all else as
late, so that few values outlive their phase.
"""

from functools import cached_property

from elman.compiler.ir import HEARD, LEAVES, ROW, UNITS, VECTOR, Program, reached


class Phases:
    """`place`: the phase that makes a node; products are made before it, totals are known after it."""

    def __init__(self, program: Program):
        self.program, self.kinds = program, program.kinds()
        nodes = program.nodes
        self.live = sorted(reached(nodes, program.results()))
        early: dict[int, int] = {}
        for index in self.live:
            op, args = nodes[index].op, nodes[index].args
            known = (early[arg] + (nodes[arg].op == "total") for arg in args)
            early[index] = max(known, default=0) + (op == "product")
        self.last = max(early.values())
        results = program.results()
        now = [index for index in self.live if nodes[index].op in HEARD or index in results]
        self.place = {**dict.fromkeys(self.live, self.last), **{index: early[index] for index in now}}
        for index in reversed(self.live):
            latest = self.place[index] - (nodes[index].op == "product")
            for arg in nodes[index].args:
                if nodes[arg].op not in HEARD:
                    self.place[arg] = min(self.place[arg], latest)

    @cached_property
    def made(self) -> list[int]:
        """What some phase computes."""
        nodes = self.program.nodes
        found = [index for index in self.live if nodes[index].op not in (*LEAVES, "product")]
        return [index for index in found if self.kinds[index] in (UNITS, ROW)]

    @cached_property
    def vectors(self) -> list[int]:
        """The same for all rows and steps: made once, before the first."""
        return [i for i in self.live if self.kinds[i] == VECTOR and self.program.nodes[i].op != "vector"]

    @cached_property
    def starts(self) -> list[int]:
        """Phases before which products are made: the beginnings of stages."""
        return sorted({self.place[index] for index in self.live if self.program.nodes[index].op == "product"})

    def stage(self, phase: int) -> int:
        return sum(start <= phase for start in self.starts)

    @cached_property
    def outliving(self) -> dict[int, bool]:
        """What must lie in memory: values of units that a later phase reads, and of rows that a later stage does.

        With each, whether it must for all rows: else its stage has read it before it comes to the next row.
        """
        nodes = self.program.nodes
        found: dict[int, bool] = {}
        for index in self.live:
            for arg in set(nodes[index].args) & set(self.made):
                before, after = self.place[arg], self.place[index]
                stays = self.stage(before) < self.stage(after)
                if stays or (before < after and self.kinds[arg] == UNITS):
                    found[arg] = found.get(arg, False) or stays
        return found

    def written(self, index: int) -> int:
        """The phase that hands out a result: that which makes it; the last, if it lies in memory until then."""
        return self.place[index] if index in self.made else self.last
