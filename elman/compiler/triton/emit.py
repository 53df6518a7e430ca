"""A program of the IR as the source of a persistent Triton kernel: one launch runs all T steps of a sequence.

Symbols: B rows (sequences) of the batch, H hidden units, T steps; R rows of a group, U units of a program, P programs
of a group (partition.py). Grid: (groups, P), or (groups * P, 1) in clusters of P; a third axis of 2 if bidirectional.
Program (group, rank):

    load weights of its U units, initial state s, inputs x of the first step
    for step in range(T):
        stage 0:  critical ops -> publish values -> [prefetch inputs y] -> overlapped ops -> wait
        stage 1:  products of what the others have published, ... -> publish -> overlapped ops -> wait
        s = new state;  x = y
    store the last state and sums over steps

State and sums are float32; what is sent or stored in `history` has the dtype of products' operands. `history` has a
slot for each stored node and step, so that nothing is overwritten while others read it. Operations are pointwise on
[R, U] but for products (matmul.py) and totals (sync.py). docs/compiler.md shows the kernel of a GRU.
"""

from elman.compiler.ir import CONSTANT, ROW
from elman.compiler.triton.builder import KernelBuilder
from elman.compiler.triton.matmul import Matmul
from elman.compiler.triton.schedule import Stage
from elman.compiler.triton.sync import Sync
from elman.compiler.triton.triton_ops import interpreted, prelude


class Emitter:
    def __init__(self, builder: KernelBuilder):
        self.b, self.matmul, self.sync = builder, Matmul(builder), Sync(builder)

    def emit(self) -> str:
        """Source of a module with `kernel`."""
        b = self.b
        self._before_loop()
        self._step()
        self._after_loop()
        functions = "\n".join(b.functions.values())
        return prelude(b.itemsize, b.tf32) + functions + self._signature() + "\n".join(b.lines) + "\n"

    def _signature(self) -> str:
        """Suffixes: _r, _t, _n, _d strides (elements) of row, step, node and direction; _back the second direction."""
        b = self.b
        # in some versions the interpreter cannot loop up to a runtime argument
        names = ["T: tl.constexpr" if interpreted() else "T", "B", "max_spins", "counters", "timeout_flag", "lengths"]
        names += ["history", "history_t", "history_r", "history_n", "partial_sums", "final", "sums"]
        pointers = ("", "_back") if b.bidirectional else ("",)
        names += ["history_d"] if b.bidirectional else []
        names += [f"p{number}{end}" for number in range(len(b.parameters)) for end in (*pointers, "_r")]
        states = range(len(b.program.next_state))
        names += [f"initial{number}{end}" for number in states for end in (*pointers, "_r")]
        names += [f"load{number}{end}" for number in range(len(b.loads)) for end in (*pointers, "_t", "_r")]
        decorator = '@triton.jit(do_not_specialize=["T", "B", "max_spins"])'
        return f"\n{decorator}\ndef kernel(\n    " + ",\n    ".join(names) + ",\n):\n"

    # before the loop

    def _before_loop(self) -> None:
        b = self.b
        part, size, rows, units, tile = b.part, b.size, b.part.rows, b.part.units, b.part.padded_units
        self.sync.write_program_ids()
        if b.bidirectional:
            self._select_direction()
        b.write(f"rows = group * {rows} + tl.arange(0, {rows})")
        b.write(f"units = rank * {units} + tl.arange(0, {tile})")
        b.write("row_mask = rows < B")
        b.write(f"unit_mask = (units < tl.minimum({size}, (rank + 1) * {units}))[None, :]")
        b.write("mask = row_mask[:, None] & unit_mask")
        b.write("row = rows.to(tl.int64)[:, None]")
        b.write("unit = units[None, :]")
        b.write(f"pair = rank * {units // 2} + tl.arange(0, {tile // 2})[None, :]")
        b.write(f"pair_mask = row_mask[:, None] & (pair < tl.minimum({size}, (rank + 1) * {units}) // 2)")
        b.write(f"zeros = tl.zeros(({part.rows}, {tile}), tl.float32)")
        if any(node.op == "active" for node in b.program.nodes):
            b.write("length = tl.load(lengths + rows, mask=row_mask, other=0)[:, None]")
        for index, node in enumerate(b.program.nodes):
            if node.op == "vector":
                address = f"p{b.parameters.index(node.detail[0])} + {node.detail[1] * size} + units"
                b.write(f"v{index} = tl.load({address}, mask=units < {size}, other=0.0)[None, :].to(tl.float32)")
        self.matmul.load_weights()
        for number in range(len(b.program.next_state)):
            address = f"initial{number} + row * initial{number}_r + unit"
            b.write(f"s{number} = tl.load({address}, mask=mask, other=0.0).to(tl.float32)")
        for number in range(len(b.program.accumulated)):
            b.write(f"sum{number} = zeros")
        for number in range(len(b.loads)):
            b.write(f"x{number} = {self._load_input(number, f'tl.cast({b.order.first}, tl.int64)')}")
        self.matmul.set_up_addresses()
        self.sync.set_up()

    def _select_direction(self) -> None:
        """Pointers of the program's own direction. What the kernel writes is one tensor, direction after direction."""
        b = self.b
        b.write("direction = tl.program_id(2)")
        b.write(f"up = {'direction' if b.reverse else '1 - direction'}")
        b.write("if direction == 1:")
        for name, tensors in (("p", b.parameters), ("initial", b.program.next_state), ("load", b.loads)):
            for number in range(len(tensors)):
                b.write(f"{name}{number} = {name}{number}_back", 2)
        partial_sums = f"{len(b.totals) * b.part.rows * b.num_programs} * tl.num_programs(0)"
        b.write("direction64 = direction.to(tl.int64)")
        b.write("history += direction64 * history_d")
        b.write(f"partial_sums += direction64 * T * ({partial_sums})")
        b.write(f"final += direction64 * B * {len(b.program.next_state) * b.size}")
        b.write(f"sums += direction64 * B * {len(b.program.accumulated) * b.size}")
        b.write("counters += direction * tl.num_programs(0) * 32")

    def _load_input(self, number: int, time: str) -> str:
        load = f"load{number}"
        if self.b.loads[number][2] == ROW:
            address = f"{load} + rows.to(tl.int64) * {load}_r + {time} * {load}_t"
            return f"tl.load({address}, mask=row_mask, other=0.0)[:, None]"
        return f"load_input({load}, row * {load}_r + {time} * {load}_t, unit, pair, mask, pair_mask)"

    # one step

    def _step(self) -> None:
        b = self.b
        b.write("for step in range(T):")
        b.write(f"t = tl.cast({b.order.current}, tl.int64)", 2)  # offsets of long histories overflow 32 bits
        self.sync.start_step()
        stages = b.schedule.stages
        last = max((number for number, stage in enumerate(stages) if stage.exchange), default=-1)
        if last < 0:
            self._prefetch_inputs()
        for number, stage in enumerate(stages):
            if number and stages[number - 1].reductions:
                self.sync.all_reduce(stages[number - 1].reductions)
            self._stage(stage, prefetch=number == last)
        for number, index in enumerate(b.program.accumulated):
            b.write(f"sum{number} += {b.broadcast(index)}", 2)
        for number, index in enumerate(b.program.next_state):
            b.write(f"s{number} = {b.broadcast(index)}", 2)
        for number in range(len(b.loads)):
            b.write(f"x{number} = y{number}", 2)

    def _prefetch_inputs(self) -> None:
        """Inputs of the next step into registers; the last step loads its own once more."""
        self.b.write(f"later = {self.b.order.next}", 2)
        for number in range(len(self.b.loads)):
            self.b.write(f"y{number} = {self._load_input(number, 'later')}", 2)
        self.sync.prefetch()

    def _stage(self, stage: Stage, prefetch: bool) -> None:
        nodes = self.b.program.nodes
        # with st.async a program may send only after it has received all that was sent before: products come first
        first = [index for index in stage.overlapped if self.b.st_async and stage.published]
        first = [index for index in first if nodes[index].op == "matmul"]
        for index in (*stage.critical, *first):
            self._node(index)
        self.sync.send(stage)
        for index in stage.published:
            self._store(index)
        self.sync.publish_partial_sums(stage.reductions)
        self.sync.arrive(stage)
        if prefetch:
            self._prefetch_inputs()
        for index in stage.overlapped:
            if index not in first:
                self._node(index)
        for index in stage.saved:
            self._store(index)
        self.sync.wait(stage)

    def _node(self, index: int) -> None:
        b, node = self.b, self.b.program.nodes[index]
        if node.op in ("vector", "constant"):
            return
        if node.op == "load":
            b.write(f"v{index} = {b.step_input(b.loads.index(node.detail))}", 2)
        elif node.op == "state":
            b.write(f"v{index} = s{node.detail[0]}", 2)
        elif node.op == "active":
            b.write(f"v{index} = t < length", 2)
        elif node.op == "broadcast":
            b.write(f"v{index} = {b.broadcast(node.args[0])}", 2)
        elif node.op == "sum":
            if b.num_programs == 1:
                b.write(f"v{index} = tl.sum(tl.where(unit_mask, {b.broadcast(node.args[0])}, 0.0), 1)[:, None]", 2)
        elif node.op == "matmul":
            if index == b.products[node.args][0]:
                self.matmul.multiply(node.args, b.products[node.args])
        elif b.shapes[index] != CONSTANT:
            values = [b.value(arg) for arg in node.args]
            b.write(f"v{index} = {b.templates[node.op].format(*values)}", 2)

    def _store(self, index: int) -> None:
        b = self.b
        # no row mask: `history` has R rows for every group. The comparison, always true, makes the mask [R, U]
        mask = "" if b.tiles_are_full() else ", mask=unit_mask & (zeros == 0.0)"
        value = f"{b.broadcast(index)}.to(history.dtype.element_ty)"
        b.write(f"tl.store({b.history_address(index)} + row * history_r + unit, {value}{mask})", 2)

    # after the loop

    def _after_loop(self) -> None:
        b = self.b
        self.sync.finish()
        for number in range(len(b.program.next_state)):
            address = f"final + ({number} * B + row) * {b.size} + unit"
            b.write(f"tl.store({address}, s{number}, mask=mask)")
        for number in range(len(b.program.accumulated)):
            address = f"sums + ({number} * B + row) * {b.size} + unit"
            b.write(f"tl.store({address}, sum{number}, mask=mask)")
