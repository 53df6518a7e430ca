"""Sampling of the next token: penalties, logit bias, temperature, top-k, top-p (nucleus), min-p, then one draw per row.

Each row has its own random generator, so its text does not depend on the rest of the batch.
"""

import math
from collections.abc import Container, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from elman.config import Config
from elman.errors import ConfigError, ElmanError
from elman.ops.host_sync import may_sync
from elman.shapes import State, Step, Token, Tokens

NO_TOKEN = -1  # padding of the window of recent tokens
TOP_P_TOLERANCE = 1e-7  # rounding error of float32 logits: a cumulative probability this close to top_p reaches it


class SamplingConfig(Config):
    """Sampling settings."""

    temperature: float = Field(default=1.0, ge=0)
    """Softmax temperature: above 1 more random, below 1 more predictable; 0: greedy decoding."""
    top_k: int = Field(default=0, ge=0)
    """Top-k sampling: sample from the k most probable tokens; 0: from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus (top-p) sampling: sample from the fewest tokens whose total probability reaches p; 1: from all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Min-p sampling: exclude tokens with less than this share of the most probable token's probability; 0: none."""
    seed: int | None = Field(default=None, ge=0)
    """Random seed of the generated text; null: a new one each time."""


class GenerationConfig(SamplingConfig):
    max_tokens: int = Field(default=200, ge=1)
    """Maximum number of generated tokens per prompt."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Repetition penalty: positive logits of recent tokens are divided by it, negative ones multiplied."""
    repetition_window: int = Field(default=64, ge=1)
    """Number of latest tokens, prompt included, that the repetition penalty applies to."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that were generated before."""
    frequency_penalty: float = 0.0
    """Subtracted from the logits of tokens once for each time that they were generated before."""
    logit_bias: dict[Annotated[int, Field(ge=0)], float] = Field(default_factory=dict)
    """Added to the logits, by token: -100 forbids a token, 100 forces it."""
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Stop strings: generation stops before the first of them; they are not part of the result."""
    unknown: bool = False
    """Draw `<unk>` too, the token in place of unknown words and characters; otherwise it has no probability."""
    stop_at_end: bool = True
    """Stop at the end-of-document token; otherwise go on with another document on a new line."""
    engine: Literal["auto", "native", "captured", "torch"] = "auto"
    """What runs the steps: machine code compiled for the model (native: CPU), a CUDA graph of a step (captured:
    GPU), or torch. auto uses the graph on a GPU, and on a CPU compiles (a few seconds) for texts of thousands of
    tokens."""
    weights: Literal["fp32", "int8"] = "fp32"
    """Weights of the native engine: int8 quantization is three times as fast; torch always uses the model's own."""

    @property
    def counts_tokens(self) -> bool:
        """Whether sampling depends on how often each token was generated."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0


class SampledToken(NamedTuple):
    token: int
    log_prob: float  # under the model itself, before temperature, top-k and the other settings


Steps = Iterator[list[SampledToken | None]]  # one token per row at a time; None for finished rows


class DecodingInputs(NamedTuple):
    """State of a batch after prefill, and the settings: the input of every engine."""

    logits: Step  # after the prompt
    state: State
    config: GenerationConfig
    eos_id: int
    start_id: int
    generators: Sequence[np.random.Generator]
    recent: Tokens | None  # recent tokens of each row, for the repetition penalty
    done: Container[int]  # finished rows; the consumer may add to them
    excluded: int | None = None  # a token that is never drawn


def random_stream(seed: int, *number: int) -> np.random.Generator:
    """The random generator of one row, statistically independent of those of other rows and seeds."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=number))


def sample_tokens(
    logits: Step,
    config: GenerationConfig,
    streams: Sequence[np.random.Generator],
    recent: Tokens | None = None,
    excluded: int | None = None,
    counts: Tensor | None = None,
) -> Token:
    """The next token of each row: one random number per row, none at temperature 0."""
    drawn = [stream.random() for stream in streams] if config.temperature else []
    uniforms = torch.tensor(drawn, dtype=sampling_dtype(logits), device=logits.device)
    return tokens_at_uniforms(logits, config, uniforms, recent, excluded, counts)


def tokens_at_uniforms(
    logits: Step,
    config: GenerationConfig,
    uniforms: Tensor,
    recent: Tokens | None = None,
    excluded: int | None = None,
    counts: Tensor | None = None,
) -> Token:
    """The next token of each row, given one uniform random number in [0, 1) per row."""
    processed = process_logits(logits, config, recent, excluded, counts)
    return processed.argmax(dim=-1) if config.temperature == 0 else sample(processed, uniforms)


def sample(logits: Step, uniforms: Tensor) -> Token:
    """Inverse transform sampling: inverts the cumulative distribution at one number in [0, 1) per row."""
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1)
    below_one = 1 - torch.finfo(logits.dtype).eps / 2  # avoids an index past the last token
    places = uniforms.clamp(max=below_one).unsqueeze(-1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, places, right=True).squeeze(-1)


def process_logits(
    logits: Step,
    config: GenerationConfig,
    recent: Tokens | None = None,
    excluded: int | None = None,
    counts: Tensor | None = None,
) -> Step:
    """The logits of the sampling distribution; excluded tokens are -inf. `counts` (rows, vocabulary) says how often
    each token was generated."""
    processed = logits.to(sampling_dtype(logits))
    tokens = torch.arange(processed.shape[-1], device=processed.device)
    if recent is not None and config.repetition_penalty != 1:
        processed = penalize(processed, recent, config.repetition_penalty)
    if counts is not None and config.counts_tokens:
        processed = processed - counts * config.frequency_penalty - (counts > 0) * config.presence_penalty
    for token, bias in config.logit_bias.items():
        processed = torch.where(tokens == token, processed + bias, processed)
    if excluded is not None:
        processed = processed.masked_fill(tokens == excluded, -torch.inf)
    if config.temperature == 0:
        return processed
    processed = (processed - processed.amax(dim=-1, keepdim=True)) / config.temperature  # ≤ 0: exp is safe
    limit = processed.shape[-1]  # number of tokens that are not excluded
    if 0 < config.top_k < limit:
        limit = config.top_k
        processed = mask_all_but_top(processed, torch.full_like(processed[:, :1], limit, dtype=torch.long), limit)
    if config.top_p < 1:
        sizes = nucleus_size(processed.softmax(dim=-1), config.top_p, limit)
        processed = mask_all_but_top(processed, sizes, int(sizes.max()) if may_sync() else limit)
    if config.min_p > 0:
        least = math.log(config.min_p) - TOP_P_TOLERANCE
        processed = processed.masked_fill(processed < least, -torch.inf)
    return processed


def new_counts(logits: Step, config: GenerationConfig) -> Tensor | None:
    """Counts for texts of which nothing was generated; None where sampling needs none."""
    if wrong := [token for token in config.logit_bias if token >= logits.shape[-1]]:
        raise ConfigError(f"generation.logit_bias: token {wrong[0]} is not among the {logits.shape[-1]} tokens")
    return torch.zeros(logits.shape, dtype=torch.int32, device=logits.device) if config.counts_tokens else None


def count_tokens(counts: Tensor, tokens: Token) -> Tensor:
    """The counts after one more token of each row."""
    return counts.scatter_add(1, tokens.unsqueeze(1), torch.ones_like(tokens, dtype=torch.int32).unsqueeze(1))


def sampling_dtype(logits: Step) -> torch.dtype:
    return torch.float32 if logits.device.type == "mps" else torch.float64  # MPS has no float64


def penalize(logits: Step, recent: Tokens, penalty: float | Tensor) -> Step:
    """Repetition penalty (Keskar et al., 2019): divides positive logits of recent tokens, multiplies negative ones."""
    rows, vocab = logits.shape
    seen = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=logits.device)
    seen = seen.scatter(1, torch.where(recent == NO_TOKEN, vocab, recent), True)[:, :vocab]
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def mask_all_but_top(logits: Step, counts: Tensor, limit: int) -> Step:
    """Keeps the `counts` (rows, 1) largest logits of each row, at most `limit`, and sets the rest to -inf; ties go to
    the lowest ids."""
    largest = logits.topk(limit, dim=-1).values
    last = largest.gather(1, counts - 1)
    above, equal = logits > last, logits == last
    kept = above | (equal & (equal.cumsum(dim=-1) <= counts - above.sum(dim=-1, keepdim=True)))
    return logits.masked_fill(~kept, -torch.inf)


def nucleus_size(probabilities: Step, mass: float, limit: int) -> Tensor:
    """Size (rows, 1) of each row's nucleus: the fewest largest probabilities that reach the mass, at most `limit`."""
    size = min(256, limit) if may_sync() else limit
    while True:  # sorting a large vocabulary is slow, and the top few hundred usually reach the mass
        reached = probabilities.topk(size, dim=-1).values.cumsum(dim=-1)
        if size == limit or bool((reached[:, -1] >= mass).all()):
            return (reached < mass - TOP_P_TOLERANCE).sum(dim=-1, keepdim=True).clamp(max=limit - 1) + 1
        size = min(16 * size, limit)


def checked_logsumexp(logits: Step) -> list[float]:
    """Log-sum-exp of each row; raises an error for rows with NaN or infinite logits."""
    checked_logsumexp = logits.float().logsumexp(dim=-1).tolist()
    for row, total in enumerate(checked_logsumexp):
        if not math.isfinite(total):
            raise invalid_logits(logits, row)
    return checked_logsumexp


def invalid_logits(logits: Step, row: int) -> ElmanError:
    """The error for a row with NaN or infinite logits."""
    bad, infinite = int(logits[row].isnan().sum()), int(logits[row].isinf().sum())
    return ElmanError(
        f"invalid logits in row {row}: {bad} NaN and {infinite} inf among {logits.shape[1]}; training diverged, "
        "or the weights were damaged since: try an earlier checkpoint"
    )
