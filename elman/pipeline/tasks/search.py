"""Searching for the target of a source: beam search, sampling, or all tokens in parallel (mask-predict)."""

import math
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from elman.batches import Ragged
from elman.errors import ConfigError, nan_error
from elman.generation import (
    BeamConfig,
    Hypothesis,
    SamplingConfig,
    beam_search,
    minimum_bayes_risk,
    random_stream,
    sample_sequences,
)
from elman.models import MaskPredict
from elman.ops.state import take_rows
from elman.tokenizers import Tokenizer

Answer = dict[str, Any]


class SearchConfig(SamplingConfig, BeamConfig):
    """How targets are searched for."""

    choose: Literal["probability", "least-risk", "sample"] = "probability"
    """Which of the hypotheses to give: the one with the best score, or the one most like all others (Kumar and Byrne,
    2004); or search for none and draw one word after another, by temperature, top_k, top_p and seed."""
    iterations: int = Field(4, ge=1)
    """Passes over all words, of models that write them at once."""
    lengths: int = Field(3, ge=1)
    """Lengths that are tried at once, of these models."""
    first_line: int = Field(0, ge=0)
    """Number of the first line to predict, from 0: samples depend on the seed and the number of their line."""

    @model_validator(mode="after")
    def _draws_alone(self) -> Self:
        if self.choose == "sample" and self.coverage_penalty:
            raise ValueError("coverage_penalty ranks what a beam finds, and choose: sample has none; set it to 0")
        return self

    def with_seed(self) -> "SearchConfig":
        """The same with a random seed, where it samples and none was given."""
        samples = self.choose == "sample" and self.seed is None
        return self.model_copy(update={"seed": secrets.randbits(63)}) if samples else self


def search_targets(
    model: Any,
    source: Ragged,
    tokenizer: Tokenizer,
    search: SearchConfig,
    several: bool = False,
    numbers: Sequence[int] | None = None,
) -> Iterator[Answer]:
    """For each row its target, log-probability and score, and with `several` all candidates: first the one that was
    chosen, then the others as they were found, the best first.

    `numbers` of the rows (0, 1, 2, …) decide what is drawn, whatever the company.
    """
    if isinstance(model, MaskPredict):
        if search.choose == "sample":
            raise ConfigError("search.choose: sample draws word after word, but the model writes all words at once")
        found = _parallel(model, source, search)
    elif search.choose == "sample":
        rows = range(len(source.values)) if numbers is None else numbers
        found = _sampled(model, source, tokenizer.eos_id, search, several, rows)
    else:
        if not (several or search.choose == "least-risk"):
            search = search.model_copy(update={"num_best": 1})
        begun = model.start(source)
        searched = beam_search(model, begun, tokenizer.eos_id, search, source_lengths=source.lengths)
        found = searched.lists(tokenizer.eos_id)
    for hypotheses in found:
        yield format_candidates(_ranked(hypotheses, tokenizer, search), several)


def format_candidates(candidates: Sequence[Answer], several: bool) -> Answer:
    """The first candidate as the answer, and with `several` all of them; an empty target where there are none."""
    first = candidates[0] if candidates else {"target": "", "log_prob": None, "score": None}
    answer = {key: value for key, value in first.items() if key != "rank"}
    return answer | ({"candidates": candidates} if several else {})


def _ranked(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, search: SearchConfig) -> list[Answer]:
    """The chosen candidate has rank 1."""
    texts = [tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses]
    order = list(range(len(texts)))
    if texts and search.choose == "least-risk":
        best = minimum_bayes_risk(texts, [one.log_prob for one in hypotheses])
        order.insert(0, order.pop(best))
    return [
        {"rank": rank, "target": texts[at], "log_prob": hypotheses[at].log_prob, "score": hypotheses[at].score}
        for rank, at in enumerate(order, start=1)
    ]


def _sampled(
    model: Any, source: Ragged, eos_id: int, search: SearchConfig, several: bool, numbers: Sequence[int]
) -> list[list[Hypothesis]]:
    """One sample per row, or with `several` as many as a search returns; the first is the same."""
    count = (search.num_best or search.beam_size) if several else 1
    assert search.seed is not None, "not settled"
    streams = [random_stream(search.seed, number, which) for number in numbers for which in range(count)]
    index = torch.arange(len(numbers), device=source.values.device).repeat_interleave(count)
    state, lengths = take_rows(model.start(source), index), source.lengths[index.to(source.lengths.device)]
    found = sample_sequences(model, state, eos_id, search, search, streams, source_lengths=lengths).lists(eos_id)
    return [[one for (one,) in found[first : first + count]] for first in range(0, len(found), count)]


def _parallel(model: MaskPredict, source: Ragged, search: SearchConfig) -> list[list[Hypothesis]]:
    """One candidate per length, best first."""
    found = model.tries(source, search.iterations, search.lengths)
    if found.scores.isnan().any():
        raise nan_error()
    parts = (found.tokens.values, found.tokens.lengths, found.log_probs, found.scores)
    rows = [
        Hypothesis(tokens[:length], sum(log_probs[:length]), score)
        for tokens, length, log_probs, score in zip(*(part.tolist() for part in parts), strict=True)
    ]
    count = len(rows) // max(1, len(source.values))
    some = (rows[first : first + count] for first in range(0, len(rows), max(1, count)))
    return [[one for one in tried if math.isfinite(one.score)] for tried in some]
