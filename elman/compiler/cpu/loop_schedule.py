"""Schedules an IR as loops over units, for a thread that owns all units of its rows.

A matmul reads all rows' values and a sum reads all units of a row, so both end a loop. A loop goes over the units of a
row; a region is the loops between two GEMMs. Matmuls, sums and results are scheduled as early as possible (ASAP), all
else as late as possible (ALAP), so that few values are live across loops.
"""

from elman.compiler.ir import CROSS_UNIT, LEAVES, ROW, UNITS, VECTOR, StepIR, dependencies


class LoopSchedule:
    """`loop`: the loop that computes each node; matmuls are computed before it, sums are complete after it."""

    def __init__(self, program: StepIR):
        self.program, self.shapes = program, program.shapes()
        nodes = program.nodes
        self.live = sorted(dependencies(nodes, program.results()))
        earliest: dict[int, int] = {}  # ASAP: a sum is complete in the loop after its own; a matmul needs a new loop
        for index in self.live:
            op, args = nodes[index].op, nodes[index].args
            ready = (earliest[arg] + (nodes[arg].op == "sum") for arg in args)
            earliest[index] = max(ready, default=0) + (op == "matmul")
        self.last = max(earliest.values())
        results = program.results()
        early = [index for index in self.live if nodes[index].op in CROSS_UNIT or index in results]
        self.loop = {**dict.fromkeys(self.live, self.last), **{index: earliest[index] for index in early}}
        for index in reversed(self.live):  # ALAP: all else moves into the first loop that reads it
            latest = self.loop[index] - (nodes[index].op == "matmul")
            for arg in nodes[index].args:
                if nodes[arg].op not in CROSS_UNIT:
                    self.loop[arg] = min(self.loop[arg], latest)

        inside = [index for index in self.live if nodes[index].op not in (*LEAVES, "matmul")]
        self.computed = [index for index in inside if self.shapes[index] in (UNITS, ROW)]  # inside loops
        # loop-invariant: the same for all rows and steps, computed once before the first step
        self.vectors = [index for index in inside if self.shapes[index] == VECTOR]
        # first loops of regions: those before which GEMMs run
        self.starts = sorted({self.loop[index] for index in self.live if nodes[index].op == "matmul"})
        self.spilled = self._spilled()

    def region(self, loop: int) -> int:
        return sum(start <= loop for start in self.starts)

    def _spilled(self) -> dict[int, bool]:
        """Nodes stored in memory: UNITS values that a later loop reads, and ROW values that a later region reads.

        For each, whether it is stored for all rows; else its row's region reads it before the next row begins.
        """
        found: dict[int, bool] = {}
        for index in self.live:
            for arg in set(self.program.nodes[index].args) & set(self.computed):
                before, after = self.loop[arg], self.loop[index]
                all_rows = self.region(before) < self.region(after)
                if all_rows or (before < after and self.shapes[arg] == UNITS):
                    found[arg] = found.get(arg, False) or all_rows
        return found

    def store_loop(self, index: int) -> int:
        """The loop that stores a result: the one that computes it; the last, if it is a leaf or loop-invariant."""
        return self.loop[index] if index in self.computed else self.last
