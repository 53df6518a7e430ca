"""Rows in slots of static memory, whose steps are CUDA graphs; on a CPU the same steps run eagerly.

    block 0 (rows 0 … 63)      step ─► logits ─► draw or score ─┐
    block 1 (rows 64 … 127)    step ─► logits ─► draw or score ─┤  one graph for 1, 2, 4, … blocks, in parallel branches
    …                                                           ─┴► tokens, which the next step reads on the device

Libraries choose kernels by the shape of their operands, and kernels add up in different orders. So all arithmetic is
done in blocks of a fixed number of rows, empty slots included: a row passes through the same kernels alone and among
thousands, and its text is the same. A row that is not stepped is computed like the others, and keeps its state.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError, ElmanError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.cuda_graph import capture
from elman.generation.row_sampling import (
    COLUMNS,
    RowPenalties,
    RowSettings,
    is_penalized,
    is_truncated,
    settings_of,
    tokens_of_rows,
)
from elman.generation.sampling import NO_TOKEN, count_tokens, invalid_logits, new_counts
from elman.ops.host_sync import without_host_sync
from elman.ops.state import fixed, keep, leaves, map_state, plain, take_rows
from elman.ops.taps import stepping
from elman.serving.rows import Choice, Draw, Feed, Plan, Rows, Rule
from elman.shapes import State

BLOCK = 64  # rows that are computed together; a text depends on it in the last bits
STEPS = 16  # of a plan: tokens between two returns to the host
LAST, IDLE = -1, -2  # in place of a token: the one that was drawn last, and no step
DRAW = -1  # in place of a token to be scored
ALIGNED = 4  # columns of logits are a multiple, or reductions of a row would depend on where it begins in memory
UNLIMITED = 2**40  # steps: states in fixed memory have room for all that their layers can see


class Kind(NamedTuple):
    """What is computed after a step; each kind has graphs of its own."""

    penalized: bool = False
    truncated: bool = False
    top: int = 0  # the number of likeliest tokens that are listed, a power of two

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(self.penalized or other.penalized, self.truncated or other.truncated, max(self.top, other.top))


class Found(NamedTuple):
    """Results of some steps on the host, as lists by slot and step."""

    tokens: list[list[int]]
    log_probs: list[list[float]]
    totals: list[list[float]]  # log-sum-exp of the logits: not finite where they are invalid
    top: list[Any]  # logits and tokens of the likeliest, if they are listed


class SlotRows(Rows):
    """Up to `count` rows. `block` and `steps` are for tests."""

    def __init__(self, model: Any, count: int, block: int = BLOCK, steps: int = STEPS):
        self.model, self.block, self.steps = model, block, steps
        self.device = device_of(model)
        self.blocks = -(-count // block)
        self.count = count
        how = "CUDA graphs of steps" if self.device.type == "cuda" else "the steps of CUDA graphs, run one by one"
        self.name = f"slots: {how}, in blocks of {block} rows"
        self._slots: dict[int, int] = {}
        self._rules: dict[int, Rule] = {}
        self._free = list(range(self.blocks * block))
        self._entering: dict[int, State] = {}
        self._next = 0
        self._graphs: dict[Any, Callable[[], None]] = {}
        try:
            with inference_mode(model):
                self._allocate()
        except torch.OutOfMemoryError:
            raise ConfigError(f"the states of {count} rows do not fit in the GPU's memory; lower max_batch") from None

    def _allocate(self) -> None:
        slots, device = self.blocks * self.block, self.device
        self.state_of_slots = fixed(self.model.initial_state(slots), UNLIMITED)
        with stepping(), without_host_sync():
            first = fixed(self.model.initial_state(1), UNLIMITED)
            self.vocabulary = self.model.step(torch.zeros(1, dtype=torch.long, device=device), first)[0].shape[1]
        columns = -(-self.vocabulary // ALIGNED) * ALIGNED
        self.logits = torch.full((slots, columns), -torch.inf, device=device)
        self.token = torch.zeros(slots, dtype=torch.long, device=device)
        self.stopped = torch.zeros(slots, dtype=torch.bool, device=device)
        self.settings = torch.ones(slots, COLUMNS, dtype=torch.float64, device=device)
        self.penalties: RowPenalties | None = None
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.marks = torch.zeros(2, dtype=torch.long, device=device)
        # for each step and slot: what is fed, what is scored, whether the end of a text ends the plan
        self.inputs = torch.full((3, self.steps, slots), IDLE, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(self.steps, slots, dtype=torch.float64, device=device)
        self.outputs = torch.zeros(self.steps, 3, slots, dtype=torch.float64, device=device)
        self.tops: dict[int, tuple[Tensor, Tensor]] = {}
        pinned = device.type == "cuda"
        self._inputs = torch.full(self.inputs.shape, IDLE, dtype=torch.long, pin_memory=pinned)
        self._uniforms = torch.zeros(self.uniforms.shape, dtype=torch.float64, pin_memory=pinned)
        self._arrays, self._random = self._inputs.numpy(), self._uniforms.numpy()
        self._loaded = torch.cuda.Event() if pinned else None
        self._marks = 0, 0
        self._settings = np.ones((slots, COLUMNS))
        self._settings_changed = True
        self.branches = [torch.cuda.Stream(device) for _ in range(self.blocks)] if pinned else []
        self.pool = torch.cuda.graph_pool_handle() if pinned else None

    # rows that enter and leave

    def add(self, state: State, rule: Rule) -> int:
        if not self._free or len(self._slots) == self.count:
            raise ElmanError(f"all {self.count} slots are taken")
        new_counts(self.logits[:0, : self.vocabulary], rule.config)  # an error for a bias of a token that is not there
        self._next += 1
        slot = heappop(self._free)
        self._slots[self._next], self._rules[self._next] = slot, rule
        self._entering[self._next] = state
        self._settings[slot] = settings_of(rule.config, self.logits.shape[1], rule.excluded)
        self._settings_changed = True
        return self._next

    def remove(self, row: int) -> None:
        heappush(self._free, self._slots.pop(row))
        del self._rules[row]
        self._entering.pop(row, None)

    def state(self, row: int) -> State:
        with torch.inference_mode():
            self._enter()
            slot = self._slots[row]
            return plain(take_rows(self.state_of_slots, slice(slot, slot + 1)))

    def _enter(self) -> None:
        """Copies the states of new rows into their slots."""
        if not self._entering:
            return
        rows, states = [*self._entering], [*self._entering.values()]
        slots = torch.tensor([self._slots[row] for row in rows]).to(self.device)
        joined = fixed(map_state(lambda *parts: torch.cat(parts), *states), UNLIMITED)
        for buffer, part in zip(leaves(self.state_of_slots), leaves(joined), strict=True):
            buffer.index_copy_(0, slots, part)
        if self.penalties is not None:
            self.penalties.bias.index_fill_(0, slots, 0)  # of the row that was there before
        for row in rows:
            if is_penalized(self._rules[row].config):
                self._enter_penalties(self._slots[row], self._rules[row])
        self._entering.clear()

    def _enter_penalties(self, slot: int, rule: Rule) -> None:
        recent, counts, bias = self._penalties(rule.config.repetition_window)
        latest = torch.full((recent.shape[1],), NO_TOKEN)
        known = torch.tensor(rule.known[-rule.config.repetition_window :], dtype=torch.long)
        latest[len(latest) - len(known) :] = known
        recent[slot].copy_(latest)
        counts[slot].zero_()
        if rule.config.logit_bias:
            tokens = torch.tensor([*rule.config.logit_bias]).to(self.device)
            bias[slot, tokens] = torch.tensor([*rule.config.logit_bias.values()], dtype=bias.dtype).to(self.device)

    def _penalties(self, window: int) -> RowPenalties:
        """Made when a row first needs them, and again for a longer window: graphs hold their addresses."""
        old = self.penalties
        width = 1 << (max(window, 64) - 1).bit_length()
        if old is None or old.recent.shape[1] < width:
            recent = torch.full((len(self.logits), width), NO_TOKEN, device=self.device)
            if old is not None:
                recent[:, width - old.recent.shape[1] :] = old.recent
            counts = torch.zeros(self.logits.shape, dtype=torch.int32, device=self.device)
            bias = torch.zeros(self.logits.shape, dtype=torch.float64, device=self.device)
            self.penalties = RowPenalties(recent, *(counts, bias) if old is None else old[1:])
            self._graphs = {key: graph for key, graph in self._graphs.items() if not (key[0] and key[0].penalized)}
        assert self.penalties is not None
        return self.penalties

    # steps

    def step(self, feeds: Sequence[Feed]) -> None:
        with inference_mode(self.model):
            step = self._ready(None)
            self._begin(1)
            for row, token, _ in feeds:
                self._arrays[0, 0, self._slots[row]] = token
            self._load(1)
            step()

    def choose(self, draws: Sequence[Draw]) -> list[Choice | ElmanError]:
        with inference_mode(self.model):
            choose = self._ready(kind := self._kind(draws))
            self._begin(1)
            for row, uniform, _, token in draws:
                self._arrays[1, 0, self._slots[row]] = DRAW if token is None else token
                self._random[0, self._slots[row]] = uniform
            self._load(1)
            self.number.zero_()
            choose()
            found = self._found(1, kind)
            return [self._between(found, draw.row, draw.top, 0, 1)[0] for draw in draws]

    def extend(self, plans: Sequence[Plan], eos_id: int, start_id: int) -> list[list[Choice | ElmanError]]:
        with inference_mode(self.model):
            kind = self._kind([plan for plan in plans if len(plan.uniforms) or len(plan.targets)])
            step, choose = self._ready(None), self._ready(kind)
            self._begin(self.steps)
            ends = [self._write(plan) for plan in plans]
            steps = max(ends)
            self._load(steps, eos_id, start_id)
            chosen = (self._arrays[1, :steps] != IDLE).any(1).tolist()
            for wanted in chosen:
                step()
                if wanted:
                    choose()
            found = self._found(steps, kind)
            return [self._choices(found, plan, end, eos_id) for plan, end in zip(plans, ends, strict=True)]

    def _write(self, plan: Plan) -> int:
        """The inputs of a plan; returns the number of its steps."""
        slot, read, drawn, scored = self._slots[plan.row], len(plan.tokens), len(plan.uniforms), len(plan.targets)
        assert 0 < read >= scored + (drawn > 0), "a position is either scored or drawn at"
        end = read + max(drawn - 1, 0)
        fed, wanted, stops = self._arrays
        fed[:read, slot] = plan.tokens
        fed[read:end, slot] = LAST
        stops[:end, slot] = plan.ends
        if scored:
            wanted[:scored, slot] = plan.targets
        if drawn:
            wanted[read - 1 : end, slot] = DRAW
            self._random[read - 1 : end, slot] = plan.uniforms
        return end

    def _choices(self, found: Found, plan: Plan, end: int, eos_id: int) -> list[Choice | ElmanError]:
        scored, drawn = len(plan.targets), len(plan.tokens) - 1
        choices = self._between(found, plan.row, plan.top, 0, scored)
        if len(plan.uniforms) and len(choices) == scored:
            tokens = found.tokens[self._slots[plan.row]]
            if plan.ends and eos_id in tokens[drawn:end]:
                end = tokens.index(eos_id, drawn) + 1
            choices += self._between(found, plan.row, plan.top, drawn, end)
        return choices

    def _between(self, found: Found, row: int, top: int, first: int, end: int) -> list[Choice | ElmanError]:
        """What a row has chosen in these steps, up to invalid logits."""
        slot = self._slots[row]
        chosen = zip(found.tokens[slot], found.log_probs[slot], found.totals[slot], strict=True)
        choices: list[Choice | ElmanError] = []
        for step, (token, log_prob, total) in enumerate(islice(chosen, first, end), first):
            if not math.isfinite(total):
                return [*choices, invalid_logits(self.logits[slot : slot + 1, : self.vocabulary], 0)]
            listed: list[tuple[int, float]] = []
            if top:
                values, ids = (part[slot][step][:top] for part in found.top)
                listed = [(id, value - total) for id, value in zip(ids, values, strict=True)]
            choices.append(Choice(token, log_prob, listed))
        return choices

    def _kind(self, draws: Sequence[Draw] | Sequence[Plan]) -> Kind:
        kind = Kind()
        top = max((draw.top for draw in draws), default=0)
        for config in {id(one): one for one in (self._rules[draw.row].config for draw in draws)}.values():
            kind |= Kind(is_penalized(config), is_truncated(config))
        if kind.penalized:
            self._enter()  # which allocates
        listed = 1 << (top - 1).bit_length() if top else 0
        return kind._replace(top=min(listed, self.vocabulary))

    # static memory and graphs

    def _begin(self, steps: int) -> None:
        if self._loaded is not None:
            self._loaded.synchronize()  # the last inputs may still be on their way
        self._arrays[:, :steps] = IDLE

    def _load(self, steps: int, eos_id: int = IDLE, start_id: int = IDLE) -> None:
        self.inputs[:, :steps].copy_(self._inputs[:, :steps], non_blocking=True)
        self.uniforms[:steps].copy_(self._uniforms[:steps], non_blocking=True)
        if self._loaded is not None:
            self._loaded.record()
        if self._settings_changed:
            self.settings.copy_(torch.from_numpy(self._settings))
            self._settings_changed = False
        if (eos_id, start_id) != self._marks:
            self._marks = eos_id, start_id
            self.marks.copy_(torch.tensor(self._marks))
        self.stopped.zero_()
        self.number.fill_(-1)

    def _found(self, steps: int, kind: Kind) -> Found:
        chosen = self.outputs[:steps].permute(1, 2, 0).cpu().numpy()  # synchronizes with the device
        with np.errstate(invalid="ignore"):  # in rows that have chosen nothing
            log_probs = (chosen[1] - chosen[2]).tolist()
        top = [part[:steps].transpose(0, 1).cpu().numpy().tolist() for part in self.tops[kind.top]] if kind.top else []
        return Found(chosen[0].astype(np.int64).tolist(), log_probs, chosen[2].tolist(), top)

    def _ready(self, kind: Kind | None) -> Callable[[], None]:
        """Steps all rows, or without None draws and scores: as a graph of as many blocks as are in use.

        A graph is made while no row is stepped, since making one runs its step.
        """
        self._enter()
        blocks = self._used_blocks()
        if (kind, blocks) not in self._graphs:
            if kind is not None and kind.top and kind.top not in self.tops:
                shape = self.steps, len(self.logits), kind.top
                ids = torch.zeros(shape, dtype=torch.long, device=self.device)
                self.tops[kind.top] = torch.zeros(shape, dtype=torch.float64, device=self.device), ids
            self._begin(self.steps)
            self._load(self.steps)
            self.number.zero_()

            work = self._step_block if kind is None else partial(self._choose_block, kind)

            def run() -> None:
                with without_host_sync():
                    if kind is None:
                        self.number.add_(1).remainder_(self.steps)
                    self._each_block(blocks, work)

            graph = capture(run, self.device, self.pool)
            self._graphs[kind, blocks] = run if graph is None else graph.replay
        return self._graphs[kind, blocks]

    def _used_blocks(self) -> int:
        """1, 2, 4, … blocks that hold all rows; rows move to lower slots where that halves them."""
        most = _blocks_for(len(self._slots), self.block, self.blocks)
        limit = most * self.block
        high = [row for row, slot in self._slots.items() if slot >= limit]
        if high:
            self._move(high, [heappop(self._free) for _ in high])
        return most

    def _move(self, rows: list[int], slots: list[int]) -> None:
        before = [self._slots[row] for row in rows]
        old, new = torch.tensor(before).to(self.device), torch.tensor(slots).to(self.device)
        for buffer in (*leaves(self.state_of_slots), self.logits, *(self.penalties or ())):
            buffer.index_copy_(0, new, buffer.index_select(0, old))
        self._settings[slots] = self._settings[before]
        self._settings_changed = True
        self._slots.update(zip(rows, slots, strict=True))
        self._free += before
        heapify(self._free)

    def _each_block(self, blocks: int, work: Callable[[slice], None]) -> None:
        """On a GPU in parallel branches."""
        blocks_of_rows = [slice(start, start + self.block) for start in range(0, blocks * self.block, self.block)]
        if not self.branches:
            for rows in blocks_of_rows:
                work(rows)
            return
        main = torch.cuda.current_stream(self.device)
        for branch, rows in zip(self.branches, blocks_of_rows, strict=False):
            branch.wait_stream(main)
            with torch.cuda.stream(branch):
                work(rows)
        for branch in self.branches[:blocks]:
            main.wait_stream(branch)

    def _step_block(self, rows: slice) -> None:
        given = self.inputs[0].index_select(0, self.number).squeeze(0)[rows]
        active = (given != IDLE) & ~self.stopped[rows]
        token = torch.where(given >= 0, given, self.token[rows])
        token = torch.where((given == LAST) & (token == self.marks[0]), self.marks[1], token)
        state = take_rows(self.state_of_slots, rows)
        with stepping():
            logits, new = self.model.step(token.clamp(0, self.vocabulary - 1), state)
        keep(state, new, active)
        own = self.logits[rows, : self.vocabulary]
        own.copy_(torch.where(active.unsqueeze(1), logits.to(own.dtype), own))

    def _choose_block(self, kind: Kind, rows: slice) -> None:
        """Draws or scores the next token of each row."""
        number = self.number
        wanted, stops = (part.index_select(0, number).squeeze(0)[rows] for part in self.inputs[1:])
        logits, stopped, own = self.logits[rows], self.stopped[rows], self.token[rows]
        total = logits.logsumexp(dim=-1)
        uniforms = self.uniforms.index_select(0, number).squeeze(0)[rows]
        penalties = None
        if kind.penalized and self.penalties is not None:
            penalties = RowPenalties(*(part[rows] for part in self.penalties))
        settings = RowSettings.of(self.settings[rows])
        token = tokens_of_rows(logits, uniforms, settings, penalties, kind.truncated)
        token = torch.where(wanted >= 0, wanted, token).clamp(max=self.vocabulary - 1)
        active, drawn = (wanted != IDLE) & ~stopped, (wanted == DRAW) & ~stopped
        result = torch.stack([token.double(), logits.gather(1, token.unsqueeze(1)).squeeze(1).double(), total.double()])
        self.outputs[:, :, rows].index_copy_(0, number, result.unsqueeze(0))
        if kind.top:
            ordered = logits.sort(dim=-1, descending=True, stable=True)  # of equal logits `topk` takes any
            for buffer, part in zip(self.tops[kind.top], ordered, strict=True):
                buffer[:, rows].index_copy_(0, number, part[:, : kind.top].to(buffer.dtype).unsqueeze(0))
        if penalties is not None:
            shifted = torch.cat([penalties.recent[:, 1:], token.unsqueeze(1)], dim=1)
            keep((penalties.recent, penalties.counts), (shifted, count_tokens(penalties.counts, token)), drawn)
        own.copy_(torch.where(drawn, token, own))
        ended = drawn & (stops == 1) & (token == self.marks[0])
        stopped.copy_(stopped | ended | (active & ~total.isfinite()))


def _blocks_for(rows: int, block: int, most: int) -> int:
    needed = max(-(-rows // block), 1)
    return min(1 << (needed - 1).bit_length(), most)
