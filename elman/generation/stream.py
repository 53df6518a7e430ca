"""Streaming generation: prefill of the prompt in one forward pass (or in compiled steps where these are faster), then
one step per token, in constant memory."""

import secrets
import warnings
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.detokenize import Detokenizer, Reason
from elman.generation.engine import find_engine, prefill_by_steps, prefill_is_faster
from elman.generation.sampling import (
    NO_TOKEN,
    DecodingInputs,
    GenerationConfig,
    SampledToken,
    Steps,
    checked_logsumexp,
    count_tokens,
    new_counts,
    random_stream,
    sample_tokens,
)
from elman.models import masked_model_error, prediction_of
from elman.ops.state import take_rows
from elman.ops.taps import stepping
from elman.shapes import State, Step, Tokens

PREFILL = 512  # chunk size of prefill: bounds the memory of logits over the whole vocabulary


@dataclass(frozen=True)
class Generated:
    text: str  # after the prompt, without end-of-sequence and stop string
    tokens: list[int]  # all generated tokens, including `<eos>` or the stop string
    log_prob: float  # of these tokens under the model itself, in nats
    finished: Reason  # end-of-sequence, stop string or max_tokens


@overload
def generate(
    model: Any, tokenizer: Any, prompts: str, config: GenerationConfig | None = None, opening: Sequence[int] = ()
) -> str: ...
@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    config: GenerationConfig | None = None,
    opening: Sequence[int] = (),
) -> list[Generated]: ...


def generate(
    model: Any,
    tokenizer: Any,
    prompts: str | Sequence[str],
    config: GenerationConfig | None = None,
    opening: Sequence[int] = (),
) -> str | list[Generated]:
    """Generates a continuation of a prompt; for a list of prompts, as one batch and with details.

    `opening` are tokens that stand before texts without a prompt.
    """
    config = config or GenerationConfig()
    if isinstance(prompts, str):
        return "".join(stream(model, tokenizer, prompts, config, opening))
    encoded = [_encode(tokenizer, prompt) or list(opening) for prompt in prompts]
    writers = [Detokenizer(tokenizer, prompt, config) for prompt in encoded]
    texts = [""] * len(encoded)
    chosen: list[list[SampledToken]] = [[] for _ in encoded]
    done: set[int] = set()
    marks = tokenizer.eos_id, tokenizer.start_id
    for step in generate_tokens(model, encoded, config, *marks, done=done, excluded=_excluded(tokenizer, config)):
        for row, choice in enumerate(step):
            if choice is not None:
                texts[row] += writers[row].push(choice.token)
                chosen[row].append(choice)
                if writers[row].finished:
                    done.add(row)
    results = []
    for text, writer, choices in zip(texts, writers, chosen, strict=True):
        complete = text if writer.finished else text + writer.close()
        assert writer.finished is not None
        tokens, log_prob = [choice.token for choice in choices], sum(choice.log_prob for choice in choices)
        results.append(Generated(complete, tokens, log_prob, writer.finished))
    return results


def stream(
    model: Any, tokenizer: Any, prompt: str, config: GenerationConfig | None = None, opening: Sequence[int] = ()
) -> Iterator[str]:
    """The text of `generate`, piece by piece."""
    config = config or GenerationConfig()
    encoded = _encode(tokenizer, prompt) or list(opening)
    writer = Detokenizer(tokenizer, encoded, config)
    marks = tokenizer.eos_id, tokenizer.start_id
    for (choice,) in generate_tokens(model, [encoded], config, *marks, excluded=_excluded(tokenizer, config)):
        assert choice is not None
        if piece := writer.push(choice.token):
            yield piece
        if writer.finished:
            return
    if piece := writer.close():
        yield piece


def generate_tokens(
    model: Any,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    eos_id: int,
    start_id: int | None = None,
    *,
    streams: Sequence[int] | None = None,
    done: Container[int] = (),
    excluded: int | None = None,
) -> Steps:
    """Yields one token per row at a time, None for finished rows; a prompt may be empty.

    `streams` numbers the random generators of the rows (default 0, 1, 2, …): a row's text does not depend on the rest
    of the batch. Rows that the caller adds to `done` stop. Texts start with `start_id`, or else with `eos_id`. The
    token `excluded` is never drawn.
    """
    if prediction_of(model) == "masked":
        raise masked_model_error()
    if not prompts:
        return
    start_id = eos_id if start_id is None else start_id
    seed = secrets.randbits(63) if config.seed is None else config.seed
    generators = [random_stream(seed, number) for number in streams or range(len(prompts))]
    with inference_mode(model):
        engine = find_engine(model, config, len(prompts))
        if config.weights == "int8" and engine.name != "native":
            reason = f"weights are not quantized to int8, which only the native engine supports; {engine}"
            warnings.warn(reason, stacklevel=2)
        known = [start_id, *prompts[0]]
        if engine.program is None or len(prompts) > 1 or prefill_is_faster(model, config, len(known)):
            logits, state = prefill(model, prompts, start_id)
        else:
            logits, state = prefill_by_steps(engine.program, known, model.initial_state(1))
        recent = _recent(prompts, config).to(logits.device) if config.repetition_penalty != 1 else None
    write = engine.write or partial(generate_rows, model)
    yield from write(DecodingInputs(logits, state, config, eos_id, start_id, generators, recent, done, excluded))


def generate_rows(model: Any, inputs: DecodingInputs) -> Steps:
    """Generates with eager torch steps; finished rows leave the batch."""
    logits, state, config, eos_id, start_id, generators, recent, done, excluded = inputs
    count = len(logits)
    rows = list(range(count))  # unfinished rows
    counts = new_counts(logits, config)
    for left in reversed(range(config.max_tokens)):
        with inference_mode(model):
            sums = checked_logsumexp(logits)
            tokens = sample_tokens(logits, config, generators, recent, excluded, counts)
            scores = logits.gather(1, tokens.unsqueeze(1)).squeeze(1)
            results = zip(tokens.tolist(), scores.tolist(), sums, strict=True)
            chosen = [SampledToken(token, score - total) for token, score, total in results]
        step = dict(zip(rows, chosen, strict=True))
        yield [step.get(row) for row in range(count)]
        ended = [config.stop_at_end and choice.token == eos_id for choice in chosen]
        unfinished = [index for index, row in enumerate(rows) if row not in done and not ended[index]]
        if not unfinished or not left:
            return
        with inference_mode(model):
            if recent is not None:
                recent = torch.cat([recent[:, 1:], tokens.unsqueeze(1)], dim=1)
            if counts is not None:
                counts = count_tokens(counts, tokens)
            if len(unfinished) < len(rows):
                rows, generators = [rows[index] for index in unfinished], [generators[index] for index in unfinished]
                index = torch.tensor(unfinished, device=tokens.device)
                tokens, state = tokens[index], take_rows(state, index)
                recent = None if recent is None else recent[index]
                counts = None if counts is None else counts[index]
            with stepping():
                logits, state = model.step(torch.where(tokens == eos_id, start_id, tokens), state)


def prefill(model: Any, prompts: Sequence[Sequence[int]], start_id: int) -> tuple[Step, State]:
    """The logits after each prompt, and the state; the start token, usually `<eos>`, is prepended."""
    device = device_of(model)
    lengths = torch.tensor([len(prompt) + 1 for prompt in prompts], device=device)
    rows = [torch.tensor([start_id, *prompt]) for prompt in prompts]
    tokens = pad_sequence(rows, batch_first=True, padding_value=start_id).to(device)
    state = model.initial_state(len(prompts))
    last: Tensor | None = None
    for start in range(0, tokens.shape[1], PREFILL):
        here = (lengths - start).clamp(0, PREFILL)
        logits, state = model.forward(tokens[:, start : start + PREFILL], state, here)
        ends = logits[torch.arange(len(prompts), device=device), (here - 1).clamp(min=0)]
        last = ends if last is None else torch.where((here > 0).unsqueeze(1), ends, last)
    assert last is not None
    return last, state


def _encode(tokenizer: Any, prompt: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(prompt)]


def _excluded(tokenizer: Any, config: GenerationConfig) -> int | None:
    """The unknown token; imported tokenizers may have one token for it and for the end."""
    return None if config.unknown or tokenizer.unk_id == tokenizer.eos_id else tokenizer.unk_id


def _recent(prompts: Sequence[Sequence[int]], config: GenerationConfig) -> Tokens:
    """The last tokens of each prompt, left-padded, for the repetition penalty."""
    window = config.repetition_window
    tails = [list(prompt[-window:]) for prompt in prompts]
    return torch.tensor([[NO_TOKEN] * (window - len(tail)) + tail for tail in tails])
