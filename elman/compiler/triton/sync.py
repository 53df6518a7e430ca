"""What a kernel does to exchange values between the programs of a group: all-gather of values, all-reduce of totals.

For each of the five ways (`Partition.sync`), where data goes and how the reader knows that it is complete:

    sync              values of units                  partial sums of totals           complete when
    counter           history, in global memory        partial_sums, in global memory   atomic counter = P * exchanges
    sentinel          history                          - (needs one exchange per step)  no element is the sentinel
    cluster_barrier   history                          exchange buffer, DSMEM           barrier.cluster.wait returns
    cluster_sentinel  history                          exchange buffer, DSMEM           no element is the sentinel
    st_async          st.async to inboxes, DSMEM       exchange buffer, DSMEM           mbarrier; sums: sentinel

Order within a stage (emit.Emitter._stage): `send` and stores, `publish_partial_sums`, `arrive`, work that needs no
exchange, `wait`; the next stage starts with `all_reduce`. With a sentinel or mbarrier `wait` writes nothing: a product
waits for its inputs when it loads them (matmul.py). `rank` is a program's number within its group, 0 to P - 1.
"""

from elman.compiler.triton.builder import KernelBuilder
from elman.compiler.triton.cluster_exchange import AsyncExchange
from elman.compiler.triton.partition import SECTOR
from elman.compiler.triton.schedule import Stage
from elman.compiler.triton.spin_loads import prefetch_function


class Sync:
    def __init__(self, builder: KernelBuilder):
        self.b = builder
        self.barriers = 0  # written so far in the step, for the counter's target

    # before the loop

    def write_program_ids(self) -> None:
        """Which rows and which units are this program's."""
        b = self.b
        place = f"tl.program_id(0) {{}} {b.num_programs}"  # programs of a cluster are consecutive
        b.write(f"group = {place.format('//') if b.clustered else 'tl.program_id(0)'}")
        b.write(f"rank = {place.format('%') if b.clustered else 'tl.program_id(1)'}")

    def set_up(self) -> None:
        self._set_up_exchange()
        self._set_up_history_prefetch()
        self._set_up_input_prefetch()
        b, st_async = self.b, self.b.st_async
        if st_async:  # the initial state is sent like a new one, for step 0
            b.write(f"column = tl.arange(0, {b.part.padded_units})[None, :] + local_row * 0")
            b.write(f"offset = local_row * {st_async.row_bytes} + column * {b.itemsize}")
            states = [arg for arg in b.exchanged if b.is_state(arg)]
            self._send_blocks(st_async, [(arg, f"s{b.program.nodes[arg].detail[0]}", "0") for arg in states], 1)

    def _set_up_exchange(self) -> None:
        b = self.b
        if b.clustered:
            b.functions["exchange"] = b.exchange.functions()
            b.write("exchange = exchange_base(rank)")
            b.write(f"local_row = tl.arange(0, {b.part.rows})[:, None]")
            lanes = 1 << (max(b.part.padded_units, b.num_programs) - 1).bit_length()
            b.write(f"peer = tl.arange(0, {lanes})[None, :] + local_row * 0")
            for stage, count in enumerate(b.exchange.stages if b.polls_sums else ()):
                for half in ("exchange", f"exchange + {b.exchange.half_bytes}"):
                    b.write(f"clear_sums{count}({b.exchange.address(stage, half, 'peer')}, peer)")
            if b.st_async:
                b.write(f"inbox = exchange + {2 * b.exchange.half_bytes}")
                b.write(f"init_mbarriers({b.st_async.mbarrier(0, '0')})")
            b.write("cluster_arrive(rank)")  # shared memory of a program that has not started may not be written
            b.write("cluster_wait(rank)")
        elif b.num_programs > 1:
            b.write("counter = counters + group * 32")
            b.write(f"sums_per_total = tl.num_programs(0) * {b.part.rows * b.num_programs}")

    def _set_up_history_prefetch(self) -> None:
        """Addresses of the program's own units, one for each thread; other programs will poll them."""
        b = self.b
        if b.prefetches_history:
            b.functions["prefetch"] = prefetch_function()
            threads = min(b.part.padded_units, 32 * b.part.warps // b.part.rows)
            units = f"tl.arange(0, {threads}) * {b.part.padded_units // threads}"
            b.write(f"own = rank * {b.part.units} + {units}")
            b.write(f"own = row * history_r + tl.minimum(own, {b.width - 1})[None, :]")

    def _set_up_input_prefetch(self) -> None:
        """Addresses of the program's step inputs, one per 32-byte sector, and their distance from step to step; each is
        prefetched by one thread."""
        b = self.b
        if not b.prefetched_inputs:
            return
        b.functions["prefetch"] = prefetch_function()
        sectors = max(1, b.part.padded_units * b.itemsize // SECTOR)
        inputs = 1 << (len(b.prefetched_inputs) - 1).bit_length()
        b.write("input_row = tl.minimum(rows, B - 1).to(tl.int64)[:, None, None]")
        b.write(f"which = tl.arange(0, {inputs})[None, :, None]")
        b.write(f"along = rank * {b.part.units * b.itemsize} + tl.arange(0, {sectors}) * {SECTOR}")
        b.write(f"along = tl.minimum(along, {(b.size - 1) * b.itemsize})[None, None, :]")
        for place, number in enumerate(b.prefetched_inputs):
            load = f"load{number}"
            b.write(f"item_bytes = {load}.dtype.element_ty.primitive_bitwidth // 8")
            start = f"{load}.to(tl.int64) + input_row * {load}_r * item_bytes + along"
            step_bytes = f"tl.cast({load}_t, tl.int64) * item_bytes"
            for name, own in (("input_address", start), ("step_bytes", step_bytes)):
                chosen = f"tl.where(which < {place}, {name}, {own})" if place else f"{own} + which * 0"
                b.write(f"{name} = {chosen}")

    # one step

    def start_step(self) -> None:
        """The halves of the exchange buffer for this step and the next one."""
        self.barriers = 0
        if self.b.clustered:
            half = self.b.exchange.half_bytes
            self.b.write(f"half = exchange + step % 2 * {half}", 2)
            self.b.write(f"next_half = exchange + (step + 1) % 2 * {half}", 2)

    def prefetch(self) -> None:
        """Memory of the step after the next one into L2: a sequence's history and inputs do not fit there. Otherwise
        polls of memory outside of L2, and loads of inputs, would delay a step by the latency of DRAM."""
        b = self.b
        if b.prefetches_history:
            b.write(f"ahead = {b.order.after_next} - t", 2)
            for index in (index for stage in b.schedule.stages for index in stage.published):
                b.write(f"prefetch({b.history_address(index)} + ahead * history_t + own)", 2)
        if b.prefetched_inputs:
            b.write(f"prefetch(input_address + {b.order.after_next} * step_bytes)", 2)

    def send(self, stage: Stage) -> None:
        """The stage's values by st.async; a new state is the one before the next step."""
        b, sends = self.b, []
        for arg in b.exchanged if b.st_async else ():
            if b.published_node(arg) in stage.published:
                # receiving the last state implies that all have read the one before (cluster_exchange.py)
                assert not b.is_state(arg) or arg in b.received
                use = "(step + 1)" if b.is_state(arg) else "step"
                sends.append((arg, b.broadcast(b.published_node(arg)), use))
        if b.st_async and sends:
            self._send_blocks(b.st_async, sends, 2)

    def _send_blocks(self, st_async: AsyncExchange, sends: list[tuple[int, str, str]], depth: int) -> None:
        """(product input, tensor, use of its buffer) to all programs. Padding units become 0: NaN times 0 is NaN."""
        b = self.b
        for arg, tensor, use in sends:
            padded = tensor if b.tiles_are_full() else f"tl.where(unit_mask, {tensor}, 0.0)"
            address = f"{st_async.own_block(b.exchanged.index(arg), use)} + offset"
            b.write(f"stage_block({address}, column, {padded}.to(history.dtype.element_ty))", depth)
            b.write(st_async.expect_call(b.exchanged.index(arg), use), depth)
        b.write("tl.debug_barrier()", depth)  # all threads have staged the block, and read this step's buffer
        for arg, _, use in sends:
            b.write(st_async.send_call(b.exchanged.index(arg), use), depth)

    def arrive(self, stage: Stage) -> None:
        """Signals to other programs that this program's values of the stage are stored."""
        b = self.b
        if b.polls_sums:
            if stage.reductions:
                b.write("half = ordered(half)", 2)  # keeps the loads of sums behind the code before
        elif stage.exchange and b.clustered:
            b.write("cluster_arrive(rank)", 2)
        elif stage.exchange and b.uses_counter:
            b.write("tl.debug_barrier()", 2)
            b.write('tl.atomic_add(counter, 1, sem="release", scope="gpu")', 2)

    def wait(self, stage: Stage) -> None:
        """Until all programs of the group have arrived; where data is polled for, its loads wait instead."""
        b = self.b
        if not stage.exchange or b.polls_sums:
            return
        if b.clustered:  # a data dependency keeps loads from the buffer behind the barrier
            b.write("half = cluster_wait(half)", 2)
        elif b.uses_counter:
            self.barriers += 1
            target = f"{b.num_programs} * (step * {b.schedule.exchanges} + {self.barriers})"
            b.write(f"max_spins = wait_counter(counter, {target}, max_spins, timeout_flag)", 2)

    def publish_partial_sums(self, totals: tuple[int, ...]) -> None:
        """This program's sums over its own units, for some totals."""
        b = self.b
        values = [b.broadcast(b.program.nodes[index].args[0]) for index in totals]
        sums = b.sums_over_units([f"tl.where(unit_mask, {value}, 0.0)" for value in values])
        if not b.clustered:
            for index, own in zip(totals, sums, strict=True):
                b.write(f"tl.store({self._partial_sum(index, 'rank')}, {own})", 2)
        elif totals:
            count, stage = len(totals), self._reduction_stage(totals)
            words = ", ".join(f"{own} + peer * 0.0" for own in sums)
            b.write(f"send_sums{count}({b.exchange.address(stage, 'half', 'rank')} + peer * 0, peer, {words})", 2)
            if b.polls_sums:  # the others write there only after they have received what this program sends later
                b.write(f"clear_sums{count}({b.exchange.address(stage, 'next_half', 'peer')}, peer)", 2)

    def all_reduce(self, totals: tuple[int, ...]) -> None:
        """The sum of all programs' partial sums, for some totals."""
        b = self.b
        if b.clustered:
            names = ", ".join(f"v{index}" for index in totals)
            address = b.exchange.address(self._reduction_stage(totals), "half", "0")
            b.write(f"{names} = add_sums{len(totals)}({address}, timeout_flag, max_spins)", 2)
            return
        b.write(f"ranks = tl.arange(0, {1 << (b.num_programs - 1).bit_length()})[None, :]", 2)
        load = f'tl.load({{}}, mask=ranks < {b.num_programs}, other=0.0, cache_modifier=".cg")'
        sums = b.sums_over_units([load.format(self._partial_sum(index, "ranks")) for index in totals])
        for index, total in zip(totals, sums, strict=True):
            b.write(f"v{index} = {total}", 2)

    def _reduction_stage(self, totals: tuple[int, ...]) -> int:
        """Position among the stages that have totals."""
        return [stage.reductions for stage in self.b.schedule.stages if stage.reductions].index(totals)

    def _partial_sum(self, index: int, rank: str) -> str:
        """Address in global memory (step, total, row, rank); each step has its own, so nothing is overwritten."""
        number, b = self.b.totals.index(index), self.b
        step = f"(t * {len(b.totals)} + {number}) * sums_per_total"
        return f"partial_sums + {step} + rows[:, None] * {b.num_programs} + {rank}"

    # after the loop

    def finish(self) -> None:
        """No program may end while packets to or from it are under way."""
        b = self.b
        if b.st_async:
            for value, arg in enumerate(b.exchanged):
                if b.is_state(arg):
                    b.write(b.st_async.receive_call(value, "T"))
            b.write("cluster_arrive(rank)")
            b.write("cluster_wait(rank)")
