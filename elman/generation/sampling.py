"""From logits to the next token: repetition penalty, temperature, top-k, top-p, then one draw for each row.

A row draws from its own random stream, so what a prompt becomes does not depend on what else is in the batch.
"""

import math
from collections.abc import Container, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from elman.config import Config
from elman.errors import ElmanError
from elman.ops.host_sync import may_sync
from elman.shapes import State, Step, Token, Tokens

NOTHING = -1  # in the recent tokens: a place not yet taken
ROUNDING = 1e-7  # logits are float32: a mass this close to top_p has reached it


class DrawConfig(Config):
    """What a draw is made from."""

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Above 1 more surprising, below 1 more predictable; 0 always takes the most probable token."""

    top_k: int = Field(default=0, ge=0)
    """Choose among the k most probable tokens only; 0 among all."""

    top_p: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    """Choose among the fewest tokens whose probability together reaches p; 1 among all."""

    seed: int | None = Field(default=None, ge=0)
    """The same seed writes the same text; empty for another text each time."""


class GenerationConfig(DrawConfig):
    max_tokens: int = Field(default=200, ge=1)
    """The most tokens to write for one prompt."""

    repetition_penalty: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Above 1, recent tokens are less probable: their positive logits are divided by it, negative ones multiplied."""

    repetition_window: int = Field(default=64, ge=1)
    """How many of the latest tokens, of the prompt too, the repetition penalty looks at."""

    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """End before the first of these texts; they are not part of the result."""

    stop_at_end: bool = True
    """End where the model ends the document; otherwise it goes on with a next one, on a new line."""

    engine: Literal["auto", "native", "captured", "torch"] = "auto"
    """What takes the steps: machine code made for the model (native: on a CPU, one text at a time), a CUDA graph of a
    whole step (captured: on a GPU, any number of texts), or torch. Making machine code takes a few seconds, so auto
    does where thousands of tokens are asked for and one text is written at a time; on a GPU it takes the graph."""

    weights: Literal["fp32", "int8"] = "fp32"
    """How the native engine keeps matrices: int8 is three times as fast and rounds; torch always takes the model's."""


class Chosen(NamedTuple):
    token: int
    log_prob: float  # under the model itself, before temperature and the other settings


Steps = Iterator[list[Chosen | None]]  # one token for each row at a time; None for rows that are over


class Begun(NamedTuple):
    """Texts that have begun, and how they go on: what every way to write them is given."""

    logits: Step  # after what is there of each
    state: State
    config: GenerationConfig
    eos_id: int
    start_id: int
    randoms: Sequence[np.random.Generator]
    recent: Tokens | None  # tokens of each, for the repetition penalty
    done: Container[int]  # rows that get no further tokens; whoever reads may add to them


def random_stream(seed: int, *number: int) -> np.random.Generator:
    """The random numbers of one row: independent of those of other rows, whatever the seeds."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=number))


def choose(
    logits: Step, config: GenerationConfig, streams: Sequence[np.random.Generator], recent: Tokens | None = None
) -> Token:
    """The next token of each row: one number is drawn from each row's stream, none at temperature 0."""
    uniforms = [stream.random() for stream in streams] if config.temperature else []
    return choose_at(logits, config, torch.tensor(uniforms, dtype=precise(logits), device=logits.device), recent)


def choose_at(logits: Step, config: GenerationConfig, uniforms: Tensor, recent: Tokens | None = None) -> Token:
    """The same at numbers that are drawn already, one in [0, 1) for each row."""
    shaped = shape_logits(logits, config, recent)
    return shaped.argmax(dim=-1) if config.temperature == 0 else sample(shaped, uniforms)


def sample(logits: Step, uniforms: Tensor) -> Token:
    """The inverse of the cumulative distribution, at one number in [0, 1) for each row."""
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1)
    below_one = 1 - torch.finfo(logits.dtype).eps / 2  # a place rounded up to the total would lie behind every token
    places = uniforms.clamp(max=below_one).unsqueeze(-1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, places, right=True).squeeze(-1)


def shape_logits(logits: Step, config: GenerationConfig, recent: Tokens | None = None) -> Step:
    """The logits of the distribution that is drawn from; tokens left out are -inf."""
    shaped = logits.to(precise(logits))
    if recent is not None and config.repetition_penalty != 1:
        shaped = penalize(shaped, recent, config.repetition_penalty)
    if config.temperature == 0:
        return shaped
    shaped = (shaped - shaped.amax(dim=-1, keepdim=True)) / config.temperature  # at most 0: never overflows upwards
    most = shaped.shape[-1]  # how many tokens are not left out
    if 0 < config.top_k < most:
        most = config.top_k
        shaped = keep_largest(shaped, torch.full_like(shaped[:, :1], most, dtype=torch.long), most)
    if config.top_p < 1:
        counts = nucleus_size(shaped.softmax(dim=-1), config.top_p, most)
        shaped = keep_largest(shaped, counts, int(counts.max()) if may_sync() else most)
    return shaped


def precise(logits: Step) -> torch.dtype:
    return torch.float32 if logits.device.type == "mps" else torch.float64  # MPS has no float64


def penalize(logits: Step, recent: Tokens, penalty: float) -> Step:
    """Tokens among the recent ones: positive logits divided by the penalty, negative ones multiplied (CTRL, 2019)."""
    rows, vocab = logits.shape
    seen = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=logits.device)
    seen = seen.scatter(1, torch.where(recent == NOTHING, vocab, recent), True)[:, :vocab]
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_largest(logits: Step, counts: Tensor, most: int) -> Step:
    """Exactly the `counts` (rows, 1) largest of each row, at most `most`, the rest -inf; among equals the lowest ids
    stay."""
    largest = logits.topk(most, dim=-1).values
    last = largest.gather(1, counts - 1)
    above, equal = logits > last, logits == last
    kept = above | (equal & (equal.cumsum(dim=-1) <= counts - above.sum(dim=-1, keepdim=True)))
    return logits.masked_fill(~kept, -torch.inf)


def nucleus_size(probabilities: Step, mass: float, most: int) -> Tensor:
    """How many of each row's largest probabilities reach the mass, where at most `most` are not 0; (rows, 1)."""
    size = min(256, most) if may_sync() else most
    while True:  # sorting a large vocabulary is slow, and the first few hundred usually hold the mass
        reached = probabilities.topk(size, dim=-1).values.cumsum(dim=-1)
        if size == most or bool((reached[:, -1] >= mass).all()):
            return (reached < mass - ROUNDING).sum(dim=-1, keepdim=True).clamp(max=most - 1) + 1
        size = min(16 * size, most)


def totals(logits: Step) -> list[float]:
    """The logarithm of the sum of each row's exponentials; refuses rows from which nothing can be chosen."""
    totals = logits.float().logsumexp(dim=-1).tolist()
    for row, total in enumerate(totals):
        if not math.isfinite(total):
            raise broken(logits, row)
    return totals


def broken(logits: Step, row: int) -> ElmanError:
    """What to raise where nothing can be chosen from a row."""
    bad, infinite = int(logits[row].isnan().sum()), int(logits[row].isinf().sum())
    return ElmanError(
        f"the model's logits are broken in row {row}: {bad} NaN and {infinite} inf among {logits.shape[1]}; "
        "it was trained with too large a learning rate or damaged since: try an earlier checkpoint"
    )
