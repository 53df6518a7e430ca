"""A race of language models."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import GenerationConfig, generate_tokens
from elman.models import is_masked
from elman.ops.state import take_rows
from elman.pipeline.families import STACKS
from elman.pipeline.tasks.base import ExampleOutput, ExampleValues, InferenceWork, Measure, PreparedData, Race
from elman.pipeline.tasks.examples import FREQUENCIES, class_means
from elman.pipeline.tasks.inference import CONTEXTS, language_model_state
from elman.pipeline.tasks.language_model.data import LanguageData
from elman.pipeline.tasks.settings import Settings

if TYPE_CHECKING:
    from elman.pipeline.trained_model import TrainedModel

GENERATED = 100_000  # tokens generated to measure speed


class LanguageRace(Race):
    data: LanguageData
    default_tokens = 400_000
    entrants: ClassVar[tuple[str, ...]] = (
        "ngram",
        "window",
        "rnn",
        "gru",
        "lstm",
        "convolution",
        "attention",
        "mingru",
    )
    training: ClassVar[Settings] = {"batch_size": 16, "learning_rate": 4e-3}  # high, because a race has few steps
    measures = (Measure("loss", True, "nats per token"),)
    figures = ("loss", "perplexity", "bits_per_byte")
    paired_measure = "loss"
    graded = "Nats for a whole text"
    usage_note = (
        "Generation is greedy, one text at a time, with the engine that `elman generate` uses. State bytes are the "
        "size of the recurrent state after that many tokens."
    )

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return STACKS.get(name)

    def example_values(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> ExampleValues:
        """Nats and tokens of each document, or chunk of a long text; the loss by token frequency."""
        model, device, state = trained.model, device_of(trained.model), None
        batches, _ = self.data.evaluation_batches(prepared, split, trained.recipe)
        seen = np.bincount(prepared.stores["train"].tokens, minlength=self.data.tokenizer.vocab_size)
        times, nats = list[NDArray[Any]](), list[NDArray[Any]]()
        rows: list[torch.Tensor] = []
        for batch in batches.epoch(0):
            here = batch.to(device)
            with inference_mode(model):
                fresh = batch.fresh
                state = model.initial_state(len(batch.inputs)) if fresh else take_rows(state, slice(0, batch.size))
                losses, state = model.losses(here.inputs, here.targets, state, here.lengths)
            losses, real = losses.cpu().double(), batch.mask().cpu()
            losses = torch.where(real, losses, 0.0)
            rows.append(torch.stack([losses.sum(1), real.sum(1).double()]))
            times.append(seen[batch.targets[real].numpy()])
            nats.append(losses[real].numpy())
        frequencies, ones = np.concatenate(times), np.ones(sum(map(len, times)))
        tables = {"by_frequency": class_means(frequencies, np.array(FREQUENCIES), np.concatenate(nats), ones, "loss")}
        values, weights = torch.cat(rows, dim=1).numpy()
        return ExampleValues(values, weights, tables)

    def outputs(
        self, models: "Sequence[TrainedModel]", prepared: PreparedData, split: Any, most: int, longest: int
    ) -> Iterator[ExampleOutput]:
        """Scores are log-probabilities in nats."""
        documents = islice(prepared.corpus.documents(split), most)
        texts = [document.text for document in documents if 0 < len(document.text) <= longest]
        columns = [[score.log_prob for score in trained.score(texts)] for trained in models]
        for text, scores in zip(texts, zip(*columns, strict=True), strict=True):
            yield ExampleOutput(text, "", [f"{-score:.1f}" for score in scores], list(scores))

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        model = trained.model
        if is_masked(model):
            return InferenceWork()
        rate, length = "generation_tokens_per_second", trained.recipe.training.sequence_length
        return InferenceWork(rate, self._turns(model), language_model_state(model), CONTEXTS, length)

    def _turns(self, model: Any) -> Iterator[int]:
        """One token per turn, by the engine that `elman generate` selects for long texts."""
        config = GenerationConfig(temperature=0, max_tokens=GENERATED, stop_at_end=False, seed=0)
        while True:
            for _ in generate_tokens(model, [[]], config, eos_id=0):
                yield 1
