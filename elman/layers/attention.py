"""Causal self-attention as a sequence layer: its state is the keys and values of the last positions."""

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman import config as settings
from elman.errors import ConfigError
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops.attention import Score, ScoreKind, answers_at_once, attend_to_past, explain
from elman.ops.norms import RMSNorm
from elman.ops.positions import alibi_slopes, rotary_angles, rotate
from elman.ops.taps import stepping, tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

USUAL_SIZE = 64  # units of a head where nothing else is asked


class AttentionState(NamedTuple):
    """The last positions of each row, the newest in the last place; a row that has seen fewer has zeros before."""

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start, those that fell out included


@LAYERS.register("attention")
class Attention(SequenceLayer):
    """Every position reads from all it can still see, weighted by how well they fit.

    The state has its full size from the start: a context as long as the training sequences is enough where no state is
    carried between them.
    """

    traits: ClassVar = Traits(
        idea="every position reads from all in reach at once, weighted by how well they fit",
        limitation="blind beyond its reach and, without positions, to order; a token costs as much as all it sees",
        training="3·stepping; all positions at once",
        stepping="2·head_size·(width·(heads + kv_heads) + heads·min(length, reach)); reach: window or context",
        state="2·(reach − 1)·kv_heads·head_size + 1",
    )
    sites: ClassVar = {
        "query": "what each head looks for: (time, heads, size), as scored (q)",
        "key": "what each position offers: (time, kv_heads, size), as scored (k)",
        "value": "what each position gives (v)",
        "scores": "how well keys fit: (time, heads, context); the last is the position itself, -inf where nothing is",
        "weights": "share of each position in what is read, laid out like the scores; by_position makes a square (α)",
        "read": "what each head reads: (time, heads, size)",
    }

    class Config(settings.Config):
        num_heads: int = Field(0, ge=0)
        """Heads that look on their own; 0 takes as many of at least 64 units as split the width."""
        kv_heads: int = Field(0, ge=0)
        """Heads of keys and values, each shared by several that look (grouped attention); 0 takes num_heads."""
        head_size: int = Field(0, ge=0)
        """Units of a head; 0 takes width / num_heads."""
        score: ScoreKind = "scaled"
        """How a key is compared with a query: q·k, q·k / √size, bilinear q·W·k or additive v·tanh(W q + U k)."""
        context: int = Field(1024, ge=1)
        """Positions that a token can see, itself included; the state keeps all of them but one."""
        window: int = Field(0, ge=0)
        """Sliding window: a shorter context; 0 takes all of it."""
        positions: Literal["none", "rotary", "alibi"] = "none"
        """How order shows: not at all, by rotating queries and keys, or by taking from scores with distance."""
        rotary_base: float = Field(10_000.0, gt=1)
        """The slowest pair of units turns once in about 2π times this many positions."""
        bias: bool = False
        """Whether the projections have bias vectors."""
        query_key_norm: bool = False
        """Bring queries and keys of each head to one length (RMS norm) before they are compared."""
        projections: bool = True
        """Learned queries, keys, values and output; false takes the input for all, in one head: Σ softmax(x·x') x'."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """Share of the weights dropped in training."""

        @model_validator(mode="after")
        def _fits(self) -> "Attention.Config":
            if self.window > self.context:
                raise ValueError(
                    f"a window of {self.window} positions needs a context as long, but context is {self.context}"
                )
            if not self.projections and (self.num_heads > 1 or self.kv_heads > 1 or self.head_size or self.bias):
                raise ValueError(
                    "without projections attention has one head as wide as its input and no biases; "
                    "leave out num_heads, kv_heads, head_size and bias, or set projections: true"
                )
            return self

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.config = config
        self.input_size = self.output_size = input_size
        self.heads, self.kv_heads, self.head_size = head_sizes(config, input_size)
        self.reach = config.window or config.context
        if config.projections:
            together = (self.heads + 2 * self.kv_heads) * self.head_size
            self.from_input = nn.Linear(input_size, together, bias=config.bias)
            self.to_output = nn.Linear(self.heads * self.head_size, input_size, bias=config.bias)
        self.score = Score(config.score, self.heads, self.head_size)
        if config.query_key_norm:
            self.query_norm, self.key_norm = RMSNorm(self.head_size), RMSNorm(self.head_size)
        # also tells device and precision of the layer, which may have no parameters
        slopes = alibi_slopes(self.heads) if config.positions == "alibi" else torch.zeros(())
        self.register_buffer("slopes", slopes, persistent=False)
        self.slopes: Tensor

    def initial_state(self, batch: int) -> AttentionState:
        """Zeros that take no memory: their places are all the same number."""
        kind = torch.promote_types(self.slopes.dtype, torch.float32)
        zero = torch.zeros((), dtype=kind, device=self.slopes.device)
        empty = zero.expand(batch, self.kv_heads, self.reach - 1, self.head_size)
        return AttentionState(empty, empty, torch.zeros(batch, dtype=torch.long, device=zero.device))

    def forward(
        self, x: Sequence, state: AttentionState | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, AttentionState]:
        state = self.initial_state(len(x)) if state is None else state
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.output_size), state
        query, key, value = self._project(x, state.seen)
        past = _filled(state)
        (keys, all_keys), (values, all_values) = _join(state.keys, key, past), _join(state.values, value, past)
        slopes = self.slopes if self.config.positions == "alibi" else None
        dropout = self.config.dropout if self.training else 0.0
        read = attend_to_past(
            query, keys, values, self.score, seen=state.seen, reach=self.reach, slopes=slopes, dropout=dropout
        )
        read = tap("read", read.transpose(1, 2)).flatten(2)
        after = _after(state, all_keys, all_values, x.shape[1] if lengths is None else lengths.to(x.device))
        return self.to_output(read) if self.config.projections else read, after

    def step(self, x: Step, state: AttentionState) -> tuple[Step, AttentionState]:
        with stepping(False):
            outputs, state = self.forward(x.unsqueeze(1), state)
        return outputs.squeeze(1), state

    def explain(self, batch: int, time: int) -> str:
        """Which form of attention such a batch would take, and why."""
        return explain(self.slopes.new_empty(batch, self.heads, time, self.head_size), self.score)

    def _project(self, x: Sequence, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (batch, heads, time, size)."""
        if self.config.projections:
            parts = self.from_input(x).unflatten(-1, (-1, self.head_size))
            query, key, value = parts.split([self.heads, self.kv_heads, self.kv_heads], 2)
        else:
            query = key = value = x.unsqueeze(2)
        if self.config.query_key_norm:
            query, key = self.query_norm(query).to(query.dtype), self.key_norm(key).to(key.dtype)
        if self.config.positions == "rotary":
            if answers_at_once(seen) and bool((seen == seen[:1]).all()):
                seen = seen[:1]  # one row of angles does for all
            places = seen.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
            angles = rotary_angles(places.unsqueeze(2), self.head_size, self.config.rotary_base)
            query, key = rotate(query, *angles), rotate(key, *angles)
        query, key, value = tap("query", query), tap("key", key), tap("value", value)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def head_sizes(config: Attention.Config, width: int) -> tuple[int, int, int]:
    """Heads that look, heads of keys and values, and units of each; or an error that says what would work."""
    even = config.positions == "rotary"
    shared = config.kv_heads or 1
    if not config.projections or config.head_size:
        size = config.head_size or width
        heads = config.num_heads or max(shared, width // size)
    else:
        works = [n for n in range(1, width + 1) if width % n == 0 and n % shared == 0 and not (even and width // n % 2)]
        some = (
            f"num_heads of {', '.join(map(str, works[:12]))} would do, or set head_size" if works else "set head_size"
        )
        heads = config.num_heads or max((n for n in works if n <= width // USUAL_SIZE), default=min(works, default=1))
        if width % heads:
            raise ConfigError(f"attention: width {width} does not split into {heads} heads of even size; {some}")
        size = width // heads
        if even and size % 2:
            raise ConfigError(
                f"attention: rotary positions turn pairs of units, but width {width} in {heads} heads gives {size} "
                f"units each; {some}"
            )
    if even and size % 2:
        raise ConfigError(f"attention: rotary positions turn pairs of units, so {size} units of a head must be even")
    if heads % shared:
        raise ConfigError(
            f"attention: {heads} heads do not share {shared} heads of keys and values evenly; "
            f"kv_heads of {', '.join(str(n) for n in range(1, heads + 1) if heads % n == 0)} would do"
        )
    return heads, config.kv_heads or heads, size


def _filled(state: AttentionState) -> int:
    """How many of the last places can hold something; zeros without memory (stride 0) hold nothing for sure."""
    places = state.keys.shape[2]
    if answers_at_once(state.seen):
        return min(places, int(state.seen.max())) if len(state.seen) else 0
    return 0 if state.keys.stride(2) == 0 else places


def _join(old: Tensor, new: Tensor, filled: int) -> tuple[Tensor, Tensor]:
    """What can be seen, and all places followed by the new ones, in the precision of the state."""
    whole = torch.cat([old, new.to(old.dtype)], 2)
    return new if filled == 0 else whole[:, :, old.shape[2] - filled :].to(new.dtype), whole


def _after(state: AttentionState, keys: Tensor, values: Tensor, new: int | Tensor) -> AttentionState:
    """The last places of each row after its `new` real positions."""
    places = state.keys.shape[2]
    if isinstance(new, int):
        # a part of what was just built, without a copy, unless most of that would be kept alive for nothing
        last = [part[:, :, new:] if new <= places else part[:, :, new:].clone() for part in (keys, values)]
    else:
        index = (new.unsqueeze(1) + torch.arange(places, device=new.device))[:, None, :, None]
        last = [part.gather(2, index.expand_as(state.keys)) for part in (keys, values)]
    return AttentionState(last[0], last[1], state.seen + new)
