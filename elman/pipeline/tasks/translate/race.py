"""A race of translators."""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.inference_mode import device_of
from elman.models import EncoderDecoder, MaskPredict
from elman.pipeline.tasks.base import InferenceWork, Measure, PreparedData
from elman.pipeline.tasks.examples import TIMED_EXAMPLES, ExampleRace
from elman.pipeline.tasks.inference import CONTEXTS
from elman.shapes import State

if TYPE_CHECKING:
    from elman.pipeline.trained_model import TrainedModel


class TranslateRace(ExampleRace):
    unit = "target tokens"
    entrants = ("rnn", "gru", "lstm", "attention")
    measures = (
        Measure("bleu", False, "BLEU", digits=2),
        Measure("exact_match", False, "of the targets right", percent=True),
    )
    figures = ("loss", "bleu", "chrf", "exact_match")
    paired_measure = "exact_match"
    usage_note = (
        "Writing is greedy, one text at a time. The reading of its source is in its time, and all write as many tokens "
        "as the true target has. State bytes are what is carried on after a source of so many tokens and as many "
        "written, the source itself included where it is looked at; a model that writes all words at once carries "
        "nothing on."
    )

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        model, rate = trained.model, "generation_tokens_per_second"
        pairs = _pairs(prepared.stores[split], device_of(model))
        if isinstance(model, MaskPredict):
            return InferenceWork(rate, _parallel_turns(trained, pairs))
        return InferenceWork(
            rate, _turns(model, pairs), _state_after(model), CONTEXTS[:-1]
        )  # some hold a table of both


def _turns(model: EncoderDecoder, pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """A translation a turn, token after token."""
    for source, length in pairs:
        state, token = model.start(source), source.lengths.new_full((1,), model.eos_id)
        for _ in range(length):
            logits, state = model.step(token, state)
            token = logits.argmax(-1)
        yield length


def _parallel_turns(trained: "TrainedModel", pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """A translation a turn, all tokens of it in as many passes as its recipe searches with."""
    search = trained.recipe.search
    for source, _ in pairs:
        yield int(trained.model.write(source, search.iterations, search.lengths).tokens.lengths)


def _pairs(store: Any, device: torch.device) -> Iterator[tuple[Ragged, int]]:
    """Sources, each with the length of its true target, again and again."""
    for number in cycle(range(min(TIMED_EXAMPLES, len(store)))):
        batch = store.gather(np.array([number])).to(device)
        yield batch.ragged("source"), int(batch.ragged("target").lengths)


def _state_after(model: EncoderDecoder) -> Callable[[Tensor], State]:
    """After a source of some tokens, and as many written."""

    def state_after(tokens: Tensor) -> State:
        state: State = model.start(Ragged(tokens, torch.tensor([tokens.shape[1]], device=tokens.device)))
        for token in tokens.unbind(1):
            _, state = model.step(token, state)
        return state

    return state_after
