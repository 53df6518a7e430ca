"""Values by post: every letter comes to everyone, and nobody overwrites what is still to be read."""

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
from elman.compiler.triton.cluster_exchange import BARRIER, Post
from elman.compiler.triton.emit import Emitter
from elman.compiler.triton.partition import Partition
from elman.recurrence import compiled_triton

POSTS = [Post(16, 32, 16, 2, 256, 1), Post(8, 24, 5, 2, 128, 4), Post(32, 64, 8, 2, 128, 2), Post(16, 24, 7, 4, 64, 3)]


@pytest.mark.parametrize("post", POSTS, ids=str)
def test_a_post_has_a_place_for_everything(post: Post) -> None:
    """Halves and barriers; a unit is found where its program's block has it. Planted: one half; blocks of rows
    as long as all units."""
    taken: set[int] = set()
    for value in range(post.values):
        places = [(eval(post.box(value, str(time)), {"post": 0}), post.half) for time in (4, 7)]
        assert all(start % 16 == 0 for start, _ in places)
        places += [(eval(post.barrier(value, str(time)), {"post": 0}), BARRIER) for time in (4, 7)]
        for start, many in places:
            assert start % BARRIER == 0
            assert taken.isdisjoint(range(start, start + many))
            taken |= set(range(start, start + many))
    assert max(taken) < post.size
    for unit in range(post.units * post.programs):
        own = unit // post.units * post.block + 3 * post.row + unit % post.units * post.itemsize
        assert eval(post.within("3", str(unit))) == own < post.half


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("post", POSTS, ids=str)
def test_every_letter_is_sent_to_everyone_once(post: Post, last: bool) -> None:
    """As the assembly says, thread by thread. Planted: a thread too many; the last program taken for the first."""
    slot, block, barrier = post.programs - 1 if last else 1, 50_000, 90_000
    sent = []
    for thread in range(post.threads):
        sent += list(letters(post, {"%tid.x": thread, "$1": block, "$2": barrier, "$3": slot}))
    offsets = range(0, post.block, 16)
    assert sorted(sent) == sorted(
        (block + n, (whom, block + n), (whom, barrier)) for n in offsets for whom in range(post.programs)
    )


def letters(post: Post, known: dict[str, int]) -> Iterator[tuple[int, Any, Any]]:
    """What one thread sends: from where, and to where with which barrier in whose memory."""
    (text,) = re.findall(r'def sent\(.*\n.*?elementwise\("\{(.*?)\}", "', post.functions())
    far = 1 << 24  # the addresses of one program's memory
    low, values = 1 << 32, dict(known)

    def number(word: str) -> int:
        return values[word] if word in values else int(word)

    for line in text.split("\\n"):
        condition, instruction = re.fullmatch(r"(@one )?(.*);", line).groups()  # type: ignore[union-attr]
        op, _, rest = instruction.partition(" ")
        if condition and not values["one"]:
            continue
        if op.startswith("st.async"):
            to, into = (values[name] for name in re.findall(r"\[(\w+)\]", rest))
            yield values["letter at"], divmod(to, far), divmod(into, far)
        elif op.startswith("ld.shared"):
            values["letter at"] = values[re.findall(r"\[(\w+)\]", rest)[0]]
        elif op != ".reg":
            name, *given = rest.split(", ")
            a, b, c = (*map(number, given), 0, 0)[:3]
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
                "mapa": a + far * b,
                "setp": int(a < b and (c if len(given) > 2 else 1)),
            }[op.split(".")[0]] % low


class Forgetful(Cell):
    """Its state needs nothing of what was heard: a product of the old one is only shown."""

    name = "forgetful"

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


POSTED = [
    ("layernorm-lstm", {}),
    ("gru", {"reset": "before"}),
    ("gru", {}),
    ("invented", {}),
    ("peephole", {"form": "full"}),
]


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("case", [*POSTED, ("forgetful", {})], ids=str)
def test_all_hear_what_was_sent_for_them_however_slow_some_are(
    case: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of a kernel as it was written, with letters that take any time. Planted: one half for all steps; a
    phase that changes with each step; states sent as those of the step before; no waiting for the last; products of a
    state after the next one is sent."""
    monkeypatch.setitem(cell_cases.KNOWN, "forgetful", Forgetful)
    program = compiled_triton.plan(cell_of(*case, hidden_size=48)).program(way)
    part = Partition(16, 16, 4, 4, poll="post")
    source = Emitter(program, program.results(), part, 2, "tf32", way == "backward", False).emitted().source
    post = part.mailbox(program, 2).post
    assert post is not None
    for seed in range(20):
        Cluster(post, source[source.index("def kernel") :].split("\n"), seed).run()


class Cluster:
    """Programs that send and hear, one call at a time, in an order that chance chooses."""

    def __init__(self, post: Post, lines: list[str], seed: int):
        self.post, self.lines, self.chance = post, lines, random.Random(seed)
        self.steps = self.chance.randrange(1, 8)
        self.boxes: dict[tuple[int, int], Any] = {}
        self.barriers: dict[tuple[int, int], list[int]] = {}  # arrivals and bytes that are missing, and the phase
        self.letters: list[tuple[int, int, Any, int]] = []

    def run(self) -> None:
        begin = self.lines.index("    for step in range(T):")
        end = next(n for n, line in enumerate(self.lines) if n > begin and not line.startswith(" " * 8))
        calls = [*self.calls(range(begin), 0)]
        for step in range(self.steps):
            calls += self.calls(range(begin, end), step)
        calls += self.calls(range(end, len(self.lines)), self.steps)
        assert calls
        programs = [self.program(slot, calls) for slot in range(self.post.programs)]
        pace = [self.chance.choice([1, 10]) for _ in programs]
        left, idle = set(range(len(programs))), 0
        while left:
            idle += 1
            assert idle < 10_000, "all wait for each other"
            if self.letters and self.chance.random() < 0.5:
                self.deliver(self.letters.pop(self.chance.randrange(len(self.letters))))
                continue
            slot = self.chance.choices(list(left), [pace[one] for one in left])[0]
            moved = next(programs[slot], None)
            idle = idle if moved == "waits" else 0
            if moved is None:
                left.remove(slot)
                assert all(letter[0] != slot for letter in self.letters)

    def calls(self, lines: range, step: int) -> Iterator[tuple[str, list[str], int]]:
        for line in (self.lines[n] for n in lines):
            found = re.fullmatch(r" +(?:\w+ = )?(heard|sent|laid)\((.*)\)", line)
            if found:
                yield found[1], found[2].split(", ")[: 1 if found[1] == "laid" else 3], step

    def program(self, slot: int, calls: list[tuple[str, list[str], int]]) -> Iterator[str]:
        names = {"post": 0, "slot": slot, "T": self.steps, "spot": 0}
        laid: Counter[int] = Counter()
        heard: Counter[int] = Counter()
        for name, given, step in calls:
            place, *others = (eval(one, {**names, "step": step}) for one in given)
            value = place // (2 * self.post.half)
            if name == "laid":
                self.boxes[slot, place] = value, slot, laid[value]
                laid[value] += 1
            elif name == "sent":
                block = self.boxes[slot, place]
                self.letters += [(whom, place, block, others[0]) for whom in range(self.post.programs)]
            else:
                barrier = self.barriers.setdefault((slot, others[0]), [1, 0, 0])
                barrier[0] -= 1
                barrier[1] += self.post.half
                self.turn(barrier)
                while barrier[2] % 2 == others[1] % 2:
                    yield "waits"
                yield "reads"
                blocks = [self.boxes[slot, place + n * self.post.block] for n in range(self.post.programs)]
                assert blocks == [(value, n, heard[value]) for n in range(self.post.programs)]
                heard[value] += 1
            yield name

    def deliver(self, letter: tuple[int, int, Any, int]) -> None:
        whom, place, block, into = letter
        self.boxes[whom, place] = block
        barrier = self.barriers.setdefault((whom, into), [1, 0, 0])
        barrier[1] -= self.post.block
        self.turn(barrier)

    def turn(self, barrier: list[int]) -> None:
        if barrier[:2] == [0, 0]:
            barrier[:] = [1, 0, barrier[2] + 1]
