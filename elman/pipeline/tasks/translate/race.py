"""The speed of translators, and the size of their state, for races."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.inference_mode import device_of
from elman.models import EncoderDecoder, MaskPredict
from elman.pipeline.tasks.examples import TIMED_EXAMPLES
from elman.pipeline.tasks.race import CONTEXTS, InferenceWork
from elman.shapes import State

if TYPE_CHECKING:
    from elman.pipeline.trained_model import TrainedModel


def translation_work(trained: "TrainedModel", store: Any) -> InferenceWork:
    """Translating the sources of a store, one at a time."""
    model, rate = trained.model, "generation_tokens_per_second"
    pairs = _pairs(store, device_of(model))
    if isinstance(model, MaskPredict):
        return InferenceWork(rate, _parallel_turns(trained, pairs))
    contexts = CONTEXTS[:-1]  # some hold a table of both
    return InferenceWork(rate, _turns(model, pairs), partial(_state_after, model), contexts)


def _turns(model: EncoderDecoder, pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """One translation per turn, decoded token by token."""
    for source, length in pairs:
        state, token = model.start(source), source.lengths.new_full((1,), model.eos_id)
        for _ in range(length):
            logits, state = model.step(token, state)
            token = logits.argmax(-1)
        yield length


def _parallel_turns(trained: "TrainedModel", pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """One translation per turn, decoded in parallel with the number of passes in the recipe."""
    search = trained.recipe.search
    for source, _ in pairs:
        yield int(trained.model.write(source, search.iterations, search.lengths).tokens.lengths)


def _pairs(store: Any, device: torch.device) -> Iterator[tuple[Ragged, int]]:
    """Sources with the length of their true target, in an endless cycle."""
    for number in cycle(range(min(TIMED_EXAMPLES, len(store)))):
        batch = store.gather(np.array([number])).to(device)
        yield batch.ragged("source"), int(batch.ragged("target").lengths)


def _state_after(model: EncoderDecoder, tokens: Tensor) -> State:
    """The decoder state after a source of some tokens, and as many target tokens."""
    state: State = model.start(Ragged(tokens, torch.tensor([tokens.shape[1]], device=tokens.device)))
    for token in tokens.unbind(1):
        _, state = model.step(token, state)
    return state
