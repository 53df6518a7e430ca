"""Base of attention layers: projections to heads, score, positions."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman import config as settings
from elman.errors import ConfigError
from elman.layers.base import ParallelLayer
from elman.ops.attention import Score, ScoreKind, choose, may_read_values
from elman.ops.norms import RMSNorm
from elman.ops.positions import alibi_slopes, rotary_angles, rotate
from elman.ops.taps import tap
from elman.shapes import Sequence

DEFAULT_SIZE = 64  # units per head


class HeadsConfig(settings.Config):
    num_heads: int = Field(0, ge=0)
    """Number of query heads; 0: as many of at least 64 units as divide the width."""
    kv_heads: int = Field(0, ge=0)
    """Number of key-value heads, shared by groups of query heads (grouped-query attention); 0: num_heads."""
    head_size: int = Field(0, ge=0)
    """Units per head; 0: width / num_heads."""
    score: ScoreKind = "scaled"
    """Score of query and key: q·k, q·k / √size, bilinear q·W·k or additive v·tanh(W q + U k)."""
    positions: Literal["none", "rotary", "alibi"] = "none"
    """Position encoding: none, rotary embeddings (RoPE), or linear biases by distance (ALiBi)."""
    rotary_base: float = Field(10_000.0, gt=1)
    """Base of rotary embeddings: the slowest pair of units has a period of about 2π times this many positions."""
    bias: bool = False
    """Bias of the projections."""
    query_key_norm: bool = False
    """Query-key normalization: RMS norm of the queries and keys of each head."""
    projections: bool = True
    """Learned query, key, value and output projections; false: plain attention over inputs with one head, Σ
    softmax(x·x') x'."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on attention weights."""

    @model_validator(mode="after")
    def _plain_has_one_head(self) -> "HeadsConfig":
        if not self.projections and (self.num_heads > 1 or self.kv_heads > 1 or self.head_size or self.bias):
            raise ValueError(
                "attention without projections has one head as wide as its input and no biases; "
                "remove num_heads, kv_heads, head_size and bias, or set projections: true"
            )
        return self


class HeadedLayer(ParallelLayer):
    """Projections to heads and back; subclasses define the attention pattern."""

    sites: ClassVar = {
        "query": "queries: (time, heads, size), after norm and rotation (q)",
        "key": "keys: (time, kv_heads, size), after norm and rotation (k)",
        "value": "values (v)",
        "read": "outputs of the heads: (time, heads, size)",
    }

    def __init__(self, config: HeadsConfig, input_size: int):
        super().__init__(config, input_size)
        self.heads, self.kv_heads, self.head_size = head_sizes(config, input_size)
        if config.projections:
            width = (self.heads + 2 * self.kv_heads) * self.head_size
            self.from_input = nn.Linear(input_size, width, bias=config.bias)
            self.to_output = nn.Linear(self.heads * self.head_size, input_size, bias=config.bias)
        self.score = Score(config.score, self.heads, self.head_size)
        if config.query_key_norm:
            self.query_norm, self.key_norm = RMSNorm(self.head_size), RMSNorm(self.head_size)
        # a buffer, because the layer may have no parameters but needs a device and dtype
        slopes = alibi_slopes(self.heads) if config.positions == "alibi" else torch.zeros(())
        self.register_buffer("slopes", slopes, persistent=False)
        self.slopes: Tensor

    def project(self, x: Sequence, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as (batch, heads, time, size), after `seen` (batch,) positions of each row."""
        if self.config.projections:
            parts = self.from_input(x).unflatten(-1, (-1, self.head_size))
            query, key, value = parts.split([self.heads, self.kv_heads, self.kv_heads], 2)
        else:
            query = key = value = x.unsqueeze(2)
        if self.config.query_key_norm:
            query, key = self.query_norm(query).to(query.dtype), self.key_norm(key).to(key.dtype)
        if self.config.positions == "rotary":
            if may_read_values(seen) and bool((seen == seen[:1]).all()):
                seen = seen[:1]  # one row of angles for all
            places = seen.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
            angles = rotary_angles(places.unsqueeze(2), self.head_size, self.config.rotary_base)
            query, key = rotate(query, *angles), rotate(key, *angles)
        query, key, value = tap("query", query), tap("key", key), tap("value", value)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def attend(self, pattern: Callable[..., Tensor], *projected: Tensor, **where: Any) -> Sequence:
        """The layer's output from queries, keys and values, by a pattern of self-attention of `ops.attention`."""
        given = *projected, self.score
        return self.join(pattern(*given, slopes=self.by_distance, dropout=self.dropped, **where))

    def join(self, read: Tensor) -> Sequence:
        """The layer's output from the heads' outputs (batch, heads, time, size)."""
        read = tap("read", read.transpose(1, 2)).flatten(2)
        return self.to_output(read) if self.config.projections else read

    @property
    def by_distance(self) -> Tensor | None:
        """ALiBi slopes, if enabled."""
        return self.slopes if self.config.positions == "alibi" else None

    @property
    def dropped(self) -> float:
        return self.config.dropout if self.training else 0.0

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected implementation of attention, and why; padding does not matter."""
        return str(choose(self.slopes.new_empty(batch, self.heads, time, self.head_size), self.score))


def head_sizes(config: HeadsConfig, width: int) -> tuple[int, int, int]:
    """Number of query heads, number of key-value heads, units per head; or an error with valid values."""
    even = config.positions == "rotary"
    shared = config.kv_heads or 1
    if not config.projections or config.head_size:
        size = config.head_size or width
        heads = config.num_heads or max(shared, width // size)
    else:
        works = [n for n in range(1, width + 1) if width % n == 0 and n % shared == 0 and not (even and width // n % 2)]
        some = f"num_heads of {', '.join(map(str, works[:12]))} is possible, or " if works else ""
        heads = config.num_heads or max((n for n in works if n <= width // DEFAULT_SIZE), default=min(works, default=1))
        if width % heads:
            raise ConfigError(
                f"attention: width {width} does not split into {heads} heads of even size; {some}set head_size"
            )
        size = width // heads
        if even and size % 2:
            raise ConfigError(
                f"attention: rotary positions rotate pairs of units, but width {width} in {heads} heads gives {size} "
                f"units each; {some}set head_size"
            )
    if even and size % 2:
        raise ConfigError(f"attention: rotary positions rotate pairs of units, so head_size {size} must be even")
    if heads % shared:
        raise ConfigError(
            f"attention: {heads} query heads cannot share {shared} key-value heads evenly; "
            f"kv_heads of {', '.join(str(n) for n in range(1, heads + 1) if heads % n == 0)} is possible"
        )
    return heads, config.kv_heads or heads, size
