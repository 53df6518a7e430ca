"""The st.async exchange: each packet reaches every program, and no buffer is overwritten before it is read."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cell_cases
import pytest
import torch
from cell_cases import cell_of
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.triton.builder import KernelBuilder
from elman.compiler.triton.cluster_exchange import MBARRIER, PACKET, AsyncExchange
from elman.compiler.triton.emit import Emitter
from elman.compiler.triton.partition import Partition, SyncMode
from elman.recurrence import compiled_triton

EXCHANGES = [
    AsyncExchange(16, 32, 16, 2, 256, 1),
    AsyncExchange(8, 24, 5, 2, 128, 4),
    AsyncExchange(32, 64, 8, 2, 128, 2),
    AsyncExchange(16, 24, 7, 4, 64, 3),
]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: str(vars(one)))
def test_buffers_and_mbarriers_do_not_overlap(exchange: AsyncExchange) -> None:
    """And a unit lies in its program's block. Catches one buffer per value, and with blocks whose rows have
    all units."""
    taken: set[int] = set()
    for value in range(exchange.values):
        ranges = [(eval(exchange.buffer(value, str(use)), {"inbox": 0}), exchange.buffer_bytes) for use in (4, 7)]
        assert all(start % PACKET == 0 for start, _ in ranges)
        ranges += [(eval(exchange.mbarrier(value, str(use)), {"inbox": 0}), MBARRIER) for use in (4, 7)]
        for start, size in ranges:
            assert start % MBARRIER == 0
            assert taken.isdisjoint(range(start, start + size))
            taken |= set(range(start, start + size))
    assert max(taken) < exchange.total_bytes
    for unit in range(exchange.units * exchange.programs):
        block = unit // exchange.units * exchange.block_bytes
        address = block + 3 * exchange.row_bytes + unit % exchange.units * exchange.itemsize
        assert eval(exchange.offset("3", str(unit))) == address < exchange.buffer_bytes


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: str(vars(one)))
def test_every_packet_is_sent_to_every_program_once(exchange: AsyncExchange, last: bool) -> None:
    """Interprets the PTX, thread by thread. Catches a thread too many, and with a wrong wrap-around of
    ranks."""
    rank, block, mbarrier = exchange.programs - 1 if last else 1, 50_000, 90_000
    sent = []
    for thread in range(exchange.threads):
        sent += list(packets(exchange, {"%tid.x": thread, "$1": block, "$2": mbarrier, "$3": rank}))
    offsets = range(0, exchange.block_bytes, PACKET)
    assert sorted(sent) == sorted(
        (block + n, (peer, block + n), (peer, mbarrier)) for n in offsets for peer in range(exchange.programs)
    )


def packets(exchange: AsyncExchange, registers: dict[str, int]) -> Iterator[tuple[int, Any, Any]]:
    """What one thread sends: source address, and (program, address) of the destination and of the mbarrier."""
    (text,) = re.findall(r'def send_block\(.*\n.*?elementwise\("\{(.*?)\}", "', exchange.functions())
    window = 1 << 24  # addresses of one program's shared memory
    words, values = 1 << 32, dict(registers)

    def number(operand: str) -> int:
        return values[operand] if operand in values else int(operand)

    for line in text.split("\\n"):
        condition, instruction = re.fullmatch(r"(@one )?(.*);", line).groups()  # type: ignore[union-attr]
        op, _, rest = instruction.partition(" ")
        if condition and not values["one"]:
            continue
        if op.startswith("st.async"):
            destination, mbarrier = (values[name] for name in re.findall(r"\[(\w+)\]", rest))
            yield values["loaded from"], divmod(destination, window), divmod(mbarrier, window)
        elif op.startswith("ld.shared"):
            values["loaded from"] = values[re.findall(r"\[(\w+)\]", rest)[0]]
        elif op != ".reg":
            name, *operands = rest.split(", ")
            a, b, c = (*map(number, operands), 0, 0)[:3]
            values[name] = {
                "mov": a,
                "shr": a >> b,
                "and": a & b,
                "div": a // max(1, b),
                "rem": a % max(1, b),
                "add": a + b,
                "sub": a - b,
                "min": min(a, b),
                "mad": a * b + c,
                "mapa": a + window * b,
                "setp": int(a < b and (c if len(operands) > 2 else 1)),
            }[op.split(".")[0]] % words


class StateWithoutProduct(Cell):
    """Its new state does not depend on the product of the old one, which is an output only."""

    name = "state without product"

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, self.hidden_size)
        self.from_past = PastProduct(self.hidden_size, 1)

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.from_past(state)), torch.tanh(drive)


CELLS = [
    ("layernorm-lstm", {}),
    ("gru", {"reset": "before"}),
    ("gru", {}),
    ("invented", {}),
    ("peephole", {"form": "full"}),
]


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("case", [*CELLS, ("state without product", {})], ids=str)
def test_all_programs_receive_what_was_sent_for_the_step(case: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates the calls of a generated kernel, with packets and programs of random speed. Catches one
    buffer for all steps, with a parity that changes at each step, with states sent for the wrong step, without the last
    wait, and with products of a state after the next state was sent."""
    monkeypatch.setitem(cell_cases.KNOWN, "state without product", StateWithoutProduct)
    program = compiled_triton.compiled_cell(cell_of(*case, hidden_size=48)).program(way)
    part = Partition(16, 16, 4, 4, sync=SyncMode.ST_ASYNC)
    builder = KernelBuilder(program, program.results(), part, 2, "tf32", way == "backward", False)
    source = Emitter(builder).emit()
    assert builder.st_async is not None
    for seed in range(20):
        Simulation(builder.st_async, source[source.index("def kernel") :].split("\n"), seed).run()


class Simulation:
    """Programs of a cluster that send and receive, one call at a time, in random order."""

    def __init__(self, exchange: AsyncExchange, lines: list[str], seed: int):
        self.exchange, self.lines, self.random = exchange, lines, random.Random(seed)
        self.steps = self.random.randrange(1, 8)
        self.buffers: dict[tuple[int, int], Any] = {}  # by program and address
        self.mbarriers: dict[tuple[int, int], list[int]] = {}  # arrivals and bytes that are missing, and the phase
        self.in_flight: list[tuple[int, int, Any, int]] = []

    def run(self) -> None:
        begin = self.lines.index("    for step in range(T):")
        end = next(n for n, line in enumerate(self.lines) if n > begin and not line.startswith(" " * 8))
        calls = [*self.calls(range(begin), 0)]
        for step in range(self.steps):
            calls += self.calls(range(begin, end), step)
        calls += self.calls(range(end, len(self.lines)), self.steps)
        assert calls
        programs = [self.program(rank, calls) for rank in range(self.exchange.programs)]
        speed = [self.random.choice([1, 10]) for _ in programs]
        running, idle = set(range(len(programs))), 0
        while running:
            idle += 1
            assert idle < 10_000, "deadlock"
            if self.in_flight and self.random.random() < 0.5:
                self.deliver(self.in_flight.pop(self.random.randrange(len(self.in_flight))))
                continue
            rank = self.random.choices(list(running), [speed[one] for one in running])[0]
            done = next(programs[rank], None)
            idle = idle if done == "waits" else 0
            if done is None:
                running.remove(rank)
                assert all(packet[0] != rank for packet in self.in_flight)

    def calls(self, lines: range, step: int) -> Iterator[tuple[str, list[str], int]]:
        for line in (self.lines[n] for n in lines):
            found = re.fullmatch(r" +(?:\w+ = )?(receive|send_block|stage_block)\((.*)\)", line)
            if found:
                yield found[1], found[2].split(", ")[: 1 if found[1] == "stage_block" else 3], step

    def program(self, rank: int, calls: list[tuple[str, list[str], int]]) -> Iterator[str]:
        names = {"inbox": 0, "rank": rank, "T": self.steps, "offset": 0}
        staged: Counter[int] = Counter()
        received: Counter[int] = Counter()
        for name, arguments, step in calls:
            address, *others = (eval(one, {**names, "step": step}) for one in arguments)
            value = address // (2 * self.exchange.buffer_bytes)
            if name == "stage_block":
                self.buffers[rank, address] = value, rank, staged[value]
                staged[value] += 1
            elif name == "send_block":
                block = self.buffers[rank, address]
                self.in_flight += [(peer, address, block, others[0]) for peer in range(self.exchange.programs)]
            else:
                mbarrier = self.mbarriers.setdefault((rank, others[0]), [1, 0, 0])
                mbarrier[0] -= 1
                mbarrier[1] += self.exchange.buffer_bytes
                self.end_phase(mbarrier)
                while mbarrier[2] % 2 == others[1] % 2:
                    yield "waits"
                yield "reads"
                ranks = range(self.exchange.programs)
                blocks = [self.buffers[rank, address + n * self.exchange.block_bytes] for n in ranks]
                assert blocks == [(value, n, received[value]) for n in ranks]
                received[value] += 1
            yield name

    def deliver(self, packet: tuple[int, int, Any, int]) -> None:
        peer, address, block, into = packet
        self.buffers[peer, address] = block
        mbarrier = self.mbarriers.setdefault((peer, into), [1, 0, 0])
        mbarrier[1] -= self.exchange.block_bytes
        self.end_phase(mbarrier)

    def end_phase(self, mbarrier: list[int]) -> None:
        if mbarrier[:2] == [0, 0]:
            mbarrier[:] = [1, 0, mbarrier[2] + 1]
