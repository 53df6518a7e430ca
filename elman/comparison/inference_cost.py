"""What it takes to use a trained model: tokens that it writes a second, or texts that it answers; bytes it carries on.

Which of these a task has is told in `APPLIES`, for the report: what is not there is no gap in the measuring.
"""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch

from elman.batches import Ragged
from elman.comparison.flops import layer_costs
from elman.comparison.plan import Job
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import GenerationConfig, generate_tokens
from elman.models import Classifier, EncoderDecoder, MaskPredict, prediction_of
from elman.ops.state import tensors
from elman.pipeline.tasks import Prepared
from elman.pipeline.tasks.language import LanguageModelling
from elman.pipeline.trained_model import TrainedModel, load
from elman.runs import atomic_write
from elman.shapes import State

CONTEXTS = (1, 16, 64, 256, 1024)
PAIRS = CONTEXTS[:-1]  # of a source and of what is written: some models hold a table of both
LONG = 100_000  # tokens of a text
TIMED = 0.4  # seconds of work that tell its speed
ASKED = 64  # examples of the split that are answered in turn

WRITES = "Writing is greedy, one text at a time. "
APPLIES = {
    "language-model": f"{WRITES}It is done as `elman generate` does it. State bytes are what a text carries on after "
    "so many tokens.",
    "masked": "A masked model fills gaps with both sides in sight: it writes no text and carries no state on.",
    "classify": "A classifier writes nothing; answers are texts a second, one at a time. State bytes are what its "
    "layers carry on after so many tokens; layers that see both sides carry nothing on.",
    "tag": "A tagger writes nothing, and sees both sides of each word, so that it carries no state on; answers are "
    "sentences a second, one at a time.",
    "translate": f"{WRITES}The reading of its source is in its time, and all write as many tokens as the true target "
    "has. State bytes are what is carried on after a source of so many tokens and as many written, the source itself "
    "included where it is looked at; a model that writes all words at once carries nothing on.",
}


def usage_of(job: Job, prepared: Prepared, split: str) -> dict[str, Any]:
    """Of a trained job, what its task has of these. Kept beside it, for a clock never says the same twice."""
    kept = job.folder / "speed.json"
    if kept.exists():
        return json.loads(kept.read_text())
    found = _usage(load(job.folder), prepared, split)
    atomic_write(kept, json.dumps(found).encode())
    return found


def _usage(trained: TrainedModel, prepared: Prepared, split: str) -> dict[str, Any]:
    model, task = trained.model, trained.task
    if isinstance(model, EncoderDecoder | MaskPredict):
        pairs = _pairs(prepared.stores[split], device_of(model))
        if isinstance(model, MaskPredict):
            return {"generation_tokens_per_second": speed(model, _at_once(trained, pairs))}
        found = {"generation_tokens_per_second": speed(model, _steps(model, pairs))}
        return found | {"state_bytes": state_bytes(model, PAIRS)}
    if not isinstance(task, LanguageModelling):
        states = {"state_bytes": state_bytes(model, CONTEXTS)} if getattr(model, "causal", False) else {}
        return {"answers_per_second": speed(model, _answers(trained, prepared, split)), **states}
    if prediction_of(model) != "left-to-right":
        return {}
    return {
        "generation_tokens_per_second": speed(model, _words(model)),
        "state_bytes": state_bytes(model, CONTEXTS),
        "layers": layer_costs(model, trained.recipe.training.sequence_length),
    }


def speed(model: Any, work: Iterator[int]) -> float:
    """Units of work a second; each turn says how many it was. The first is not counted: it pays for starting up."""
    with inference_mode(model):
        next(work)
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < TIMED:
            done += next(work)
        return done / passed


def _words(model: Any) -> Iterator[int]:
    """A language model, a token a turn, by the engine that `elman generate` takes for long texts."""
    config = GenerationConfig(temperature=0, max_tokens=LONG, stop_at_end=False, seed=0)
    while True:
        for _ in generate_tokens(model, [[]], config, eos_id=0):
            yield 1


def _steps(model: EncoderDecoder, pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """A translation a turn, word after word."""
    for source, length in pairs:
        state, token = model.start(source), source.lengths.new_full((1,), model.eos_id)
        for _ in range(length):
            logits, state = model.step(token, state)
            token = logits.argmax(-1)
        yield length


def _at_once(trained: TrainedModel, pairs: Iterator[tuple[Ragged, int]]) -> Iterator[int]:
    """A translation a turn, all words of it in as many passes as its recipe searches with."""
    search = trained.recipe.search
    for source, _ in pairs:
        yield int(trained.model.write(source, search.iterations, search.lengths).tokens.lengths)


def _pairs(store: Any, device: torch.device) -> Iterator[tuple[Ragged, int]]:
    """Sources, each with the length of its true target, again and again."""
    for number in cycle(range(min(ASKED, len(store)))):
        batch = store.gather(np.array([number])).to(device)
        yield batch.ragged("source"), int(batch.ragged("target").lengths)


def _answers(trained: TrainedModel, prepared: Prepared, split: str) -> Iterator[int]:
    """A text a turn, from what is written to its answer."""
    task: Any = trained.task
    for line, _ in cycle(islice(task.questions(prepared.corpus, split), ASKED)):
        list(trained.predict([line]))
        yield 1


def state_bytes(model: Any, contexts: Sequence[int]) -> list[dict[str, int]]:
    """Bytes that a row carries on after so many tokens."""
    sizes = []
    for context in contexts:
        with inference_mode(model):
            state = carried(model, torch.zeros(1, context, dtype=torch.long, device=device_of(model)))
        held = sum(part.numel() * part.element_size() for _, part in tensors(state))
        sizes.append({"tokens": context, "bytes": held})
    return sizes


def carried(model: Any, tokens: torch.Tensor) -> State:
    """What a model holds once it has read some tokens; one that translates has also written as many."""
    if isinstance(model, EncoderDecoder):
        state: State = model.start(Ragged(tokens, torch.tensor([tokens.shape[1]], device=tokens.device)))
        for token in tokens.unbind(1):
            _, state = model.step(token, state)
        return state
    if isinstance(model, Classifier):
        return model.stack(model.embedding(tokens))[1]
    return model(tokens, model.initial_state(1))[1]
