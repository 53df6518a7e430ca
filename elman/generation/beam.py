"""Beam search: the most probable sequences that a model can write, many at a time, without a loop over beams or rows.

A hypothesis that ends among the best `beam_size` goes to the list of finished ones; its place is taken by the next best
that goes on. A row is over, and leaves the batch, as soon as it has `beam_size` finished ones, the best of them better
than all that go on: where a model is sure of a long text, many poor ends come before the good one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman.batches import Ragged
from elman.config import Config
from elman.errors import ConfigError, ElmanError, RecordingError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import cuda_graph
from elman.generation.beam_state import SharedParts
from elman.generation.sampling import Chosen
from elman.generation.topk import topk_of_sums
from elman.ops.state import tensors
from elman.ops.taps import listening, record
from elman.shapes import Lengths, State, Step, Token

UNSEEN = 1e-9  # attention below this counts as this: its logarithm shall be large, not infinite


class BeamConfig(Config):
    beam_size: int = Field(5, ge=1)
    """Hypotheses that are followed at a time; 1 is greedy search."""

    max_tokens: int = Field(200, ge=1)
    """The most tokens to write, the end counted; what has not ended by then is cut."""

    length_ratio: float = Field(0.0, ge=0, allow_inf_nan=False)
    """At most this many times the tokens of the source, and length_extra more, if max_tokens is not less; 0 sets no
    such limit."""

    length_extra: int = Field(10, ge=0)
    """What length_ratio is given in addition, for short sources."""

    num_best: int = Field(0, ge=0)
    """How many of the best are wanted: a search is over as soon as these are certain; 0 wants all beam_size."""

    length_penalty: float = Field(0.0, ge=0, allow_inf_nan=False)
    """α of ((5 + length) / 6)^α, by which log-probabilities are divided (Wu et al., 2016): above 0 favours the long."""

    coverage_penalty: float = Field(0.0, ge=0, allow_inf_nan=False)
    """β of β · Σ log min(1, attention that a place of the source got): above 0 punishes what was not looked at."""

    @model_validator(mode="after")
    def _wants_what_is_followed(self) -> "BeamConfig":
        if self.num_best > self.beam_size:
            raise ValueError(f"num_best {self.num_best} needs as many beams, but beam_size is {self.beam_size}")
        return self


class Hypothesis(NamedTuple):
    tokens: list[int]  # without the end
    log_prob: float
    score: float


class Hypotheses(NamedTuple):
    """The best of each row first: (rows, beam_size, ...). Where fewer were found, scores are -inf and lengths 0."""

    tokens: Tensor  # (rows, beam_size, longest), zeros after the end
    lengths: Tensor  # the end counted
    log_probs: Tensor  # under the model
    scores: Tensor  # with the penalties: what they are ranked by

    def lists(self, eos_id: int) -> list[list[Hypothesis]]:
        """The same as plain values, for whoever decodes or prints them."""
        found = [part.tolist() for part in self]
        return [
            [
                Hypothesis([token for token in tokens[:length] if token != eos_id], log_prob, score)
                for tokens, length, log_prob, score in zip(*row, strict=True)
                if length
            ]
            for row in zip(*found, strict=True)
        ]


class _Going(NamedTuple):
    """Hypotheses that are not over: (rows, any number, ...)."""

    tokens: Tensor
    log_probs: Tensor
    covered: Tensor  # attention that each place of the source got; no places where it does not matter

    def take(self, chosen: Tensor) -> "_Going":
        return _Going(*(_take(part, chosen) for part in self))


def beam_search(
    model: Any,
    state: State,
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    source_lengths: Lengths | None = None,
) -> Hypotheses:
    """What most probably comes after `state`: that of `model.start(source)`, or a language model's initial one.

    The model offers `step(token, state) -> (logits, state)`; the first token is `eos_id`. `source_lengths` are needed
    where the config limits what is written by them.
    """
    config = config or BeamConfig()
    beams, first = config.beam_size, next(tensors(state))[1]
    count, device = len(first), first.device
    limits = row_limits(config, source_lengths, count, device)
    longest = int(limits.max()) if count else 0
    if count and _goes_by_graph(model, state, config):
        return _greedy(model, state, eos_id, config, limits)
    with inference_mode(model):
        rows = torch.arange(count, device=device)  # those not over
        last = torch.full((count,), eos_id, device=device)
        shared = SharedParts(state)
        done = _nothing(count, beams, longest, device)
        going = _Going(done.tokens[:, :1, :0], torch.zeros_like(done.scores[:, :1]), done.scores[:, :1, None][:, :, :0])
        for length in range(1, longest + 1):
            logits, state, attention = _step(model, last, state, config)
            width = going.log_probs.shape[1]
            beam, token, log_probs = _candidates(logits, going.log_probs, beams)
            going = _Going(going.tokens, going.log_probs, _covered(going.covered, attention, len(rows))).take(beam)
            going = going._replace(tokens=torch.cat([going.tokens, token.unsqueeze(2)], 2), log_probs=log_probs)
            ended = token == eos_id
            over = ended | limits[rows].eq(length).unsqueeze(1)
            left = torch.arange(len(rows), device=device)
            if bool(over[:, :beams].any()):
                _collect(done, rows, going, over, config)
                left = _undecided(done, rows, going, over, limits, config).nonzero().squeeze(1)
            if not len(left):
                break
            chosen = ended[left].byte().argsort(dim=1, stable=True)[:, :beams]  # the best of those that go on
            going = _Going(*(part.index_select(0, left) for part in going)).take(chosen)
            going.log_probs.masked_fill_(ended[left].gather(1, chosen), -torch.inf)  # fewer words than beams
            beam = beam[left].gather(1, chosen)
            state = shared.take(state, left, beam, width)
            last, rows = going.tokens[:, :, -1].flatten(), rows[left]
    longest = int(done.lengths.max()) if count else 0
    wanted = config.num_best or beams
    return Hypotheses(*(part[:, :wanted] for part in done._replace(tokens=done.tokens[:, :, :longest])))


def forced_log_probs(model: Any, source: Ragged, target: Ragged) -> Tensor:
    """The log-probability (rows,) of each target that is given, its end counted."""
    with inference_mode(model):
        return -model.losses(source, target).sum(1)


def _goes_by_graph(model: Any, state: State, config: BeamConfig) -> bool:
    """Whether one beam, for which nobody has to look at attention or choose between rows, goes by captured steps."""
    if config.beam_size > 1 or config.coverage_penalty or listening() or not isinstance(model, nn.Module):
        return False
    return device_of(model).type == "cuda" and not cuda_graph.obstacle(model, state)


def _greedy(model: Any, state: State, eos_id: int, config: BeamConfig, limits: Tensor) -> Hypotheses:
    """What one beam finds: the most probable word again and again."""
    return one_of_each(cuda_graph.write_greedily(model, state, eos_id, limits.tolist()), config, limits.device)


def one_of_each(rows: Sequence[Sequence[Chosen]], config: BeamConfig, device: torch.device) -> Hypotheses:
    """Rows that were written word by word, each the only hypothesis of its row."""
    lengths = torch.tensor([[len(row)] for row in rows])
    tokens = torch.zeros(len(rows), 1, int(lengths.max()), dtype=torch.long)
    for place, row in zip(tokens, rows, strict=True):
        place[0, : len(row)] = torch.tensor([choice.token for choice in row])
    log_probs = torch.tensor([[sum(choice.log_prob for choice in row)] for row in rows])
    scores = log_probs / ((5 + lengths) / 6) ** config.length_penalty
    return Hypotheses(*(part.to(device) for part in (tokens, lengths, log_probs, scores)))


def row_limits(config: BeamConfig, source_lengths: Lengths | None, count: int, device: torch.device) -> Tensor:
    """The most tokens (rows,) that each row may have."""
    limits = torch.full((count,), config.max_tokens, device=device)
    if not config.length_ratio:
        return limits
    if source_lengths is None:
        raise ConfigError("length_ratio: there is no source whose length could limit what is written, so set it to 0")
    by_source = config.length_ratio * source_lengths.to(device).double() + config.length_extra
    return torch.minimum(limits, by_source.long()).clamp(min=1)


def _step(model: Any, last: Token, state: State, config: BeamConfig) -> tuple[Step, State, Tensor | None]:
    """Logits, state, and where coverage matters the attention to each place of the source, 1 at padding."""
    attention = None
    if config.coverage_penalty:
        try:
            with record("*cross-attention.weights", "*cross-attention.scores") as seen:
                logits, state = model.step(last, state)
        except RecordingError:
            raise ConfigError("coverage_penalty: the model has no attention over a source, so set it to 0") from None
        by_name = {
            name: torch.stack([seen[site][:, 0] for site in seen if site.endswith(name)])
            for name in (".weights", ".scores")
        }
        padding = (by_name[".scores"] == -torch.inf).all(0).all(1)
        attention = by_name[".weights"].mean((0, 2)).masked_fill(padding, 1).to(last.device)
    else:
        logits, state = model.step(last, state)
    return logits, state, attention


def _candidates(logits: Step, log_probs: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each row, best first: which beam, which token, log-probability.

    Twice as many as beams, since each beam can end in one way only: so as many as beams go on.
    """
    vocab = logits.shape[-1]
    step = logits.float().log_softmax(-1).view(*log_probs.shape, vocab)
    best, place = topk_of_sums(step, log_probs, 2 * beams)
    if bool(best.isnan().any()):
        raise ElmanError(
            "the model's logits are not numbers; it was trained with too large a learning rate or damaged since: "
            "try an earlier checkpoint"
        )
    return place // vocab, place % vocab, best


def _covered(before: Tensor, attention: Tensor | None, rows: int) -> Tensor:
    if attention is None:
        return before
    new = attention.view(rows, -1, attention.shape[-1])
    return new if before.shape[2] == 0 else before + new


def _collect(done: Hypotheses, rows: Tensor, going: _Going, ended: Tensor, config: BeamConfig) -> None:
    """Put those that ended among the best `beam_size` to the others that are over, ranked by score."""
    beams, length = config.beam_size, going.tokens.shape[2]
    penalty = ((5 + length) / 6) ** config.length_penalty
    scores = going.log_probs / penalty
    scores = scores + config.coverage_penalty * going.covered.clamp(UNSEEN, 1).log().sum(2)
    scores = scores.masked_fill(~ended, -torch.inf)[:, :beams]
    merged, order = torch.cat([done.scores[rows], scores], 1).sort(dim=1, descending=True, stable=True)
    order = order[:, :beams]
    lengths = torch.where(scores > -torch.inf, length, 0)
    done.scores[rows] = merged[:, :beams]
    new: tuple[Tensor, ...] = lengths, going.log_probs[:, :beams]
    for old, part in zip((done.lengths, done.log_probs), new, strict=True):
        old[rows] = torch.cat([old[rows], part], 1).gather(1, order)
    tokens = torch.cat([done.tokens[rows, :, :length], going.tokens[:, :beams]], 1)
    done.tokens[rows, :, :length] = _take(tokens, order)


def _undecided(
    done: Hypotheses, rows: Tensor, going: _Going, over: Tensor, limits: Tensor, config: BeamConfig
) -> Tensor:
    """Which of the rows may still find one of the best: not those in which no hypothesis can get better than what is
    found, nor those with all places taken, unless one that goes on is better already than the best of them. Its score
    is at most what it has, divided as if it became as long as it may: each further word makes a log-probability
    smaller, and no coverage adds to it."""
    scores, ahead = done.scores[rows], going.log_probs.masked_fill(over, -torch.inf).amax(1)
    penalty = ((5 + going.tokens.shape[2]) / 6) ** config.length_penalty
    hope = ahead / ((5 + limits[rows]) / 6) ** config.length_penalty
    full, wanted = scores[:, -1] > -torch.inf, config.num_best or config.beam_size
    return torch.where(full, scores[:, 0] < ahead / penalty, scores[:, wanted - 1] < hope)


def _nothing(rows: int, beams: int, limit: int, device: torch.device) -> Hypotheses:
    tokens = torch.zeros(rows, beams, limit, dtype=torch.long, device=device)
    none = torch.full((rows, beams), -torch.inf, device=device)
    return Hypotheses(tokens, torch.zeros(rows, beams, dtype=torch.long, device=device), none.clone(), none)


def _take(part: Tensor, chosen: Tensor) -> Tensor:
    """Some of each row: part (rows, any, ...) and chosen (rows, some) to (rows, some, ...)."""
    return part[torch.arange(len(part), device=part.device).unsqueeze(1), chosen]
