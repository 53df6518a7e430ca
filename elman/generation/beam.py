"""Batched beam search, vectorized over rows and beams.

A hypothesis that ends among the best `beam_size` moves to the list of finished ones; the next best unfinished one takes
its beam. A row is done, and leaves the batch, as soon as it has `beam_size` finished hypotheses and the wanted ones of
them beat all live ones: with a confident model and a long target, many poor short hypotheses finish before good ones.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elman.batches import Ragged
from elman.config import Config
from elman.errors import ConfigError, RecordingError, nan_error
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import cuda_graph
from elman.generation.beam_step import SharedTensors, topk_of_sums
from elman.generation.sampling import SampledToken
from elman.ops.state import tensors
from elman.ops.taps import listening, record
from elman.shapes import Lengths, State, Step, Token

MIN_COVERAGE = 1e-9  # clamps coverage, so that its logarithm is finite


class BeamConfig(Config):
    beam_size: int = Field(5, ge=1)
    """Number of beams; 1 is greedy search."""
    max_tokens: int = Field(200, ge=1)
    """Maximum number of generated tokens, end-of-sequence included; longer outputs are truncated."""
    length_ratio: float = Field(0.0, ge=0)
    """Limit the output to length_ratio · source length + length_extra tokens (and max_tokens); 0: no such limit."""
    length_extra: int = Field(10, ge=0)
    """Additional tokens of the length_ratio limit, for short sources."""
    num_best: int = Field(0, ge=0)
    """Number of hypotheses to return; the search stops as soon as these are certain. 0: all beam_size."""
    length_penalty: float = Field(0.0, ge=0)
    """Length penalty α: log-probabilities are divided by ((5 + length) / 6)^α (Wu et al., 2016); > 0 favours length."""
    coverage_penalty: float = Field(0.0, ge=0)
    """Coverage penalty β: adds β · Σ log min(1, total attention) over source positions, against skipped ones."""

    @model_validator(mode="after")
    def _num_best_fits_beam_size(self) -> "BeamConfig":
        if self.num_best > self.beam_size:
            raise ValueError(f"num_best {self.num_best} needs as many beams, but beam_size is {self.beam_size}")
        return self


class Hypothesis(NamedTuple):
    tokens: list[int]  # without end-of-sequence
    log_prob: float
    score: float


class Hypotheses(NamedTuple):
    """(rows, beam_size, ...), best first. Missing hypotheses have score -inf and length 0."""

    tokens: Tensor  # (rows, beam_size, longest), zeros after end-of-sequence
    lengths: Tensor  # including end-of-sequence
    log_probs: Tensor  # under the model
    scores: Tensor  # with length and coverage penalties; the ranking criterion

    def lists(self, eos_id: int) -> list[list[Hypothesis]]:
        """As Python lists, without missing hypotheses."""

        def hypothesis(tokens: list[int], length: int, log_prob: float, score: float) -> Hypothesis:
            return Hypothesis([token for token in tokens[:length] if token != eos_id], log_prob, score)

        rows = zip(*(part.tolist() for part in self), strict=True)
        return [[hypothesis(*one) for one in zip(*row, strict=True) if one[1]] for row in rows]


class _LiveBeams(NamedTuple):
    """Unfinished hypotheses: (rows, beams, ...)."""

    tokens: Tensor
    log_probs: Tensor
    coverage: Tensor  # accumulated attention to each source position; empty without a coverage penalty

    def take(self, chosen: Tensor) -> "_LiveBeams":
        return _LiveBeams(*(_gather_rows(part, chosen) for part in self))


def beam_search(
    model: Any,
    state: State,
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    source_lengths: Lengths | None = None,
) -> Hypotheses:
    """The most probable continuations of `state`: `model.start(source)`, or a language model's initial state.

    The model needs `step(token, state) -> (logits, state)`; the first input token is `eos_id`. `length_ratio` needs
    `source_lengths`.
    """
    config = config or BeamConfig()
    beams, first = config.beam_size, next(tensors(state))[1]
    count, device = len(first), first.device
    limits = row_limits(config, source_lengths, count, device)
    longest = int(limits.max()) if count else 0
    if count and _can_use_cuda_graph(model, state, config):
        greedy = cuda_graph.generate_within_limits(model, state, eos_id, limits.tolist())
        return single_hypotheses(greedy, config, device)
    with inference_mode(model):
        rows = torch.arange(count, device=device)  # rows still searched
        last = torch.full((count,), eos_id, device=device)
        shared = SharedTensors(state)
        finished = _no_hypotheses(count, beams, longest, device)
        start = torch.zeros_like(finished.scores[:, :1])
        live = _LiveBeams(finished.tokens[:, :1, :0], start, start.unsqueeze(2)[:, :, :0])
        for length in range(1, longest + 1):
            logits, state, attention = _step(model, last, state, config)
            width = live.log_probs.shape[1]
            beam, token, log_probs = _candidates(logits, live.log_probs, beams)
            live = live._replace(coverage=_add_coverage(live.coverage, attention, len(rows))).take(beam)
            live = live._replace(tokens=torch.cat([live.tokens, token.unsqueeze(2)], 2), log_probs=log_probs)
            ended = token == eos_id
            over = ended | limits[rows].eq(length).unsqueeze(1)
            left = torch.arange(len(rows), device=device)
            if bool(over[:, :beams].any()):
                _collect(finished, rows, live, over, config)
                left = _undecided(finished, rows, live, over, limits, config).nonzero().squeeze(1)
            if not len(left):
                break
            chosen = ended[left].byte().argsort(dim=1, stable=True)[:, :beams]  # the best unfinished ones
            live = _LiveBeams(*(part.index_select(0, left) for part in live)).take(chosen)
            live.log_probs.masked_fill_(ended[left].gather(1, chosen), -torch.inf)  # vocab < beams
            beam = beam[left].gather(1, chosen)
            state = shared.take(state, left, beam, width)
            last, rows = live.tokens[:, :, -1].flatten(), rows[left]
    longest = int(finished.lengths.max()) if count else 0
    wanted = config.num_best or beams
    return Hypotheses(*(part[:, :wanted] for part in finished._replace(tokens=finished.tokens[:, :, :longest])))


def forced_log_probs(model: Any, source: Ragged, target: Ragged) -> Tensor:
    """Log-probability (rows,) of each given target under teacher forcing, end-of-sequence included."""
    with inference_mode(model):
        log_probs = -model.losses(source, target).sum(1)
    if log_probs.isnan().any():
        raise nan_error()
    return log_probs


def _can_use_cuda_graph(model: Any, state: State, config: BeamConfig) -> bool:
    """Whether greedy search (one beam, no coverage, no recording) can run as CUDA graphs."""
    if config.beam_size > 1 or config.coverage_penalty or listening() or not isinstance(model, nn.Module):
        return False
    return device_of(model).type == "cuda" and not cuda_graph.obstacle(model, state)


def single_hypotheses(rows: Sequence[Sequence[SampledToken]], config: BeamConfig, device: torch.device) -> Hypotheses:
    """Wraps one generated sequence per row as the row's only hypothesis."""
    lengths = torch.tensor([[len(row)] for row in rows])
    tokens = pad_sequence([torch.tensor([choice.token for choice in row]) for row in rows], batch_first=True)
    log_probs = torch.tensor([[sum(choice.log_prob for choice in row)] for row in rows])
    scores = log_probs / ((5 + lengths) / 6) ** config.length_penalty
    return Hypotheses(*(part.to(device) for part in (tokens.unsqueeze(1), lengths, log_probs, scores)))


def row_limits(config: BeamConfig, source_lengths: Lengths | None, count: int, device: torch.device) -> Tensor:
    """Maximum number of tokens (rows,) of each row."""
    limits = torch.full((count,), config.max_tokens, device=device)
    if not config.length_ratio:
        return limits
    if source_lengths is None:
        raise ConfigError("length_ratio: this model has no source sequence to limit the length by; set it to 0")
    by_source = config.length_ratio * source_lengths.to(device).double() + config.length_extra
    return torch.minimum(limits, by_source.long()).clamp(min=1)


def _step(model: Any, last: Token, state: State, config: BeamConfig) -> tuple[Step, State, Tensor | None]:
    """Logits, state, and with a coverage penalty the attention to each source position, 1 at padding."""
    if not config.coverage_penalty:
        return *model.step(last, state), None
    try:
        with record("*cross-attention.weights", "*cross-attention.scores") as seen:
            logits, state = model.step(last, state)
    except RecordingError:
        raise ConfigError("coverage_penalty: this model has no cross-attention; set it to 0") from None
    weights, scores = (
        torch.stack([seen[site][:, 0] for site in seen if site.endswith(name)]) for name in (".weights", ".scores")
    )
    padding = (scores == -torch.inf).all(0).all(1)
    return logits, state, weights.mean((0, 2)).masked_fill(padding, 1).to(last.device)


def _candidates(logits: Step, log_probs: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each row, best first: beam index, token, log-probability.

    2 · beams candidates, because at most `beams` of them are end-of-sequence: so `beams` unfinished ones remain.
    """
    vocab = logits.shape[-1]
    step = logits.float().log_softmax(-1).view(*log_probs.shape, vocab)
    best, place = topk_of_sums(step, log_probs, 2 * beams)
    if bool(best.isnan().any()):
        raise nan_error()
    return place // vocab, place % vocab, best


def _add_coverage(before: Tensor, attention: Tensor | None, rows: int) -> Tensor:
    if attention is None:
        return before
    new = attention.view(rows, -1, attention.shape[-1])
    return new if before.shape[2] == 0 else before + new


def _collect(finished: Hypotheses, rows: Tensor, live: _LiveBeams, ended: Tensor, config: BeamConfig) -> None:
    """Merge hypotheses that ended among the best `beam_size` into the finished ones, ranked by score."""
    beams, length = config.beam_size, live.tokens.shape[2]
    penalty = ((5 + length) / 6) ** config.length_penalty
    scores = live.log_probs / penalty
    scores = scores + config.coverage_penalty * live.coverage.clamp(MIN_COVERAGE, 1).log().sum(2)
    scores = scores.masked_fill(~ended, -torch.inf)[:, :beams]
    merged, order = torch.cat([finished.scores[rows], scores], 1).sort(dim=1, descending=True, stable=True)
    order = order[:, :beams]
    lengths = torch.where(scores > -torch.inf, length, 0)
    finished.scores[rows] = merged[:, :beams]
    for old, new in ((finished.lengths, lengths), (finished.log_probs, live.log_probs[:, :beams])):
        old[rows] = torch.cat([old[rows], new], 1).gather(1, order)
    tokens = torch.cat([finished.tokens[rows, :, :length], live.tokens[:, :beams]], 1)
    finished.tokens[rows, :, :length] = _gather_rows(tokens, order)


def _undecided(
    finished: Hypotheses, rows: Tensor, live: _LiveBeams, over: Tensor, limits: Tensor, config: BeamConfig
) -> Tensor:
    """Mask of the rows whose best hypotheses may still change.

    With all finished slots taken, a row goes on only if a live hypothesis already beats the worst wanted one. Else it
    goes on while the upper bound of a live score does so. The bound is the current log-probability divided by the
    length penalty at maximum length: further tokens and coverage only lower the score.
    """
    scores, ahead = finished.scores[rows], live.log_probs.masked_fill(over, -torch.inf).amax(1)
    penalty = ((5 + live.tokens.shape[2]) / 6) ** config.length_penalty
    bound = ahead / ((5 + limits[rows]) / 6) ** config.length_penalty
    worst = scores[:, (config.num_best or config.beam_size) - 1]
    return worst < torch.where(scores[:, -1] > -torch.inf, ahead / penalty, bound)


def _no_hypotheses(rows: int, beams: int, limit: int, device: torch.device) -> Hypotheses:
    tokens = torch.zeros(rows, beams, limit, dtype=torch.long, device=device)
    none = torch.full((rows, beams), -torch.inf, device=device)
    return Hypotheses(tokens, torch.zeros(rows, beams, dtype=torch.long, device=device), none.clone(), none)


def _gather_rows(part: Tensor, chosen: Tensor) -> Tensor:
    """Gathers along dimension 1: part (rows, n, ...) and chosen (rows, k) to (rows, k, ...)."""
    return part[torch.arange(len(part), device=part.device).unsqueeze(1), chosen]
