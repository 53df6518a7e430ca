"""Language modelling: scores, predictions and races of models that give each token a probability.

Much is imported where it is used: to generate text, this module is loaded and little else is needed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from elman.batches import TokenStore
from elman.errors import DataError, nan_error
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation import GenerationConfig, StreamScorer, generate, generate_tokens
from elman.models import MODELS, StackConfig, frame_of, is_masked, masked_model_error, prediction_of
from elman.pipeline.tasks import TASKS, EvaluationResult, Measure, PreparedData
from elman.pipeline.tasks.language_model.data import StreamTask
from elman.pipeline.tasks.language_model.opening import opening_tokens
from elman.pipeline.tasks.position_checks import count_longer, learned_positions
from elman.pipeline.tasks.pretrained_vectors import Vocabulary, words_of_ids
from elman.pipeline.tasks.race import (
    CONTEXTS,
    FREQUENCIES,
    RIGHT,
    ExampleOutput,
    ExampleValues,
    InferenceWork,
    class_means,
)
from elman.pipeline.tasks.settings import Settings
from elman.training.reports import Validation

if TYPE_CHECKING:
    from elman.compiler.cpu.standalone import StepModel
    from elman.evaluation.likelihood import Likelihood
    from elman.evaluation.score import Score
    from elman.inspection.inspected_text import InspectedText
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.trained_model import TrainedModel

SAMPLES = 5
QUICK_TOKENS = 100  # of the sample at a validation: a step for a row of one takes about a hundredth of an update
MIN_CASES = 20  # below which a share says little
QUICK_GAPS, PASSAGE = 3, 24  # filled at a validation; tokens around and in a gap
TOP = 5  # most likely tokens of an answer
GAP = "<mask>"
GENERATED = 100_000  # tokens generated to measure speed


@TASKS.register("language-model")
class LanguageModelling(StreamTask):
    """Language modelling: predicts the next token from those before it."""

    models, default_model, default_tokenizer = MODELS, "stack", "character"
    synthetic = provides_body = races_stacks = True
    shortest_text = endpoint = ""
    race_tokens = 400_000
    race_training: ClassVar[Settings] = {"batch_size": 16, "learning_rate": 4e-3}  # high, because a race has few steps
    entrants: ClassVar[tuple[str, ...]] = (
        "ngram", "window", "rnn", "gru", "lstm", "convolution", "attention", "mingru",
    )  # fmt: skip
    measures = (Measure("loss", True, "nats per token"),)
    shown_scores = ("loss", "perplexity", "bits_per_byte")
    paired_measure = "loss"
    graded = "Nats for a whole text"
    cost_note = (
        "Generation is greedy, one text at a time, with the engine that `elman generate` uses. State bytes are the "
        "size of the recurrent state after that many tokens."
    )

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        """The default tokenizer: words for a synthetic language (the default data), else characters."""
        data = settings.get("data") or {}
        if not isinstance(data, Mapping) or (data.get("train") is None and data.get("language") is None):
            opened = dict(data) if isinstance(data, Mapping) else {}
            settings = {**settings, "data": opened | {"language": {"type": "agreement"}}}
        from_files = isinstance(data, Mapping) and data.get("train")
        return {"tokenizer": cls.default_tokenizer if from_files else "word", **settings}

    @classmethod
    def check_model(cls, config: Any) -> None:
        if isinstance(config, StackConfig):
            super().check_model(config)

    @classmethod
    def build_smallest(cls, config: Any) -> Any:
        return MODELS[config.type](config, 2)

    @classmethod
    def run_name(cls, config: Any) -> str:
        return config.type if config.type == "masked" else super().run_name(config)

    def build(self, config: Any) -> Any:
        return MODELS[config.type](config, self.tokenizer.vocab_size)

    def step_model(self, model: Any) -> "StepModel":
        from elman.compiler.cpu.standalone import StepModel

        if is_masked(model):
            raise masked_model_error()
        return StepModel(model)

    def vocabularies(self, model: Any) -> list[Vocabulary]:
        return [Vocabulary(model, words_of_ids(self.tokenizer))]

    # Evaluation: likelihood, and for a synthetic language the distance to its entropy

    def describe_model(self, model: Any) -> Settings:
        return {"prediction": prediction_of(model)}

    def validate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Validation:
        from elman.evaluation.likelihood import evaluate
        from elman.training.reports import perplexity

        batches, context = self.evaluation_batches(prepared, "valid", recipe, quick=True)
        loss = evaluate(model, batches, prepared.stores["valid"].facts, context, quick=True).loss
        return Validation(loss, loss, {"perplexity": perplexity(loss)})

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        from elman.evaluation.likelihood import evaluate

        batches, context = self.evaluation_batches(prepared, split, recipe)
        likelihood = evaluate(model, batches, prepared.stores[split].facts, context)
        scores = likelihood.plain()
        if prepared.corpus.language is not None:
            scores["language"] = self._synthetic_scores(model, prepared, split, likelihood)
        return EvaluationResult(scores, "loss", np.zeros(0), np.zeros(0))

    def _synthetic_scores(self, model: Any, prepared: PreparedData, split: Any, likelihood: "Likelihood") -> Settings:
        """Excess over the entropy of the language, for causal models; with a token for each word also agreement."""
        from elman.evaluation.synthetic import compare, excess
        from elman.jsonable import jsonable

        language: Any = prepared.corpus.language
        documents = prepared.corpus.documents(split)
        if self.tokenizer.name != "word":
            found = excess(likelihood, language, documents) if likelihood.kind == "likelihood" else None
            return {"excess": None if found is None else jsonable(found)}
        compared = compare(model, self.tokenizer, language, documents).plain()
        cases = [one for one in (compared["agreement"] or {}).get("by_distance", []) if one["words"] >= MIN_CASES]
        return {**compared, "worst_agreement": min((one["accuracy"] for one in cases), default=None)}

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe", quick: bool = False) -> list[str]:
        held_out = prepared.stores.get("valid", prepared.stores["train"])
        if is_masked(model):
            return self._filled_gaps(model, held_out, QUICK_GAPS if quick else SAMPLES)
        # in torch, since compiled steps and CUDA graphs would be made again for each sample
        shorter = {"max_tokens": min(QUICK_TOKENS, recipe.generation.max_tokens), "engine": "torch", "weights": "fp32"}
        settings = recipe.generation.model_copy(update={"seed": recipe.seed} | (shorter if quick else {}))
        opening = opening_tokens(self.tokenizer, prepared.stores["train"], held_out)
        prompts = [""] * (1 if quick else SAMPLES)
        return [sample.text for sample in generate(model, self.tokenizer, prompts, settings, opening)]

    def _filled_gaps(self, model: Any, store: TokenStore, count: int) -> list[str]:
        """Held-out passages with a gap, and the most likely token in it, with a tick or the true one."""
        (before, after), tokenizer = _around(model, self.tokenizer), self.tokenizer
        found = []
        for start in range(0, len(store.tokens) - PASSAGE, PASSAGE)[:count]:
            ids, gap = store.tokens[start : start + PASSAGE].tolist(), PASSAGE // 2
            tokens = torch.tensor([[*before, *ids[:gap], model.mask_id, *ids[gap + 1 :], *after]])
            with inference_mode(model):
                logits, _ = model(tokens.to(device_of(model)))
            best, true = int(logits[0, len(before) + gap].argmax()), ids[gap]
            space = tokenizer.separator.decode()
            text = f"{tokenizer.decode(ids[:gap])}{space}{GAP}{space}{tokenizer.decode(ids[gap + 1 :])}"
            verdict = RIGHT if best == true else f"(true: {tokenizer.token(true)})"
            found.append(f"{text} → {tokenizer.token(best)} {verdict}")
        return found

    # Prediction and scores of texts

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """The most likely next tokens of each line; for a masked model, the tokens of its gaps."""
        masked = is_masked(model)
        for text in _texts(lines, with_gaps=masked):
            with inference_mode(model):
                yield self._fill(model, text) if masked else self._next(model, text)

    def _next(self, model: Any, text: str) -> Settings:
        ids = torch.tensor([[self.tokenizer.start_id, *self.tokenizer.encode(text)]], device=device_of(model))
        logits, _ = model(ids)
        return {"text": text, "next": self._likeliest(logits[0, -1])}

    def _fill(self, model: Any, text: str) -> Settings:
        """Each gap is predicted while the others are still masked."""
        tokenizer = self.tokenizer
        before, after = _around(model, tokenizer)
        ids: list[int] = [*before]
        gaps: list[int] = []
        for number, piece in enumerate(text.split(GAP)):
            if number:
                gaps.append(len(ids))
                ids.append(model.mask_id)
            ids += tokenizer.encode(piece.strip() if tokenizer.name == "word" else piece).tolist()
        tokens = torch.tensor([[*ids, *after]], device=device_of(model))
        positions = learned_positions(model)
        self.long_lines["are", positions] += count_longer([tokens.shape[1]], positions)
        features, _ = model.features(tokens, None, None)
        fillings = [self._likeliest(model.logits(features[0, gap])) for gap in gaps]
        for gap, filling in zip(gaps, fillings, strict=True):
            ids[gap] = filling[0]["id"]
        return {"text": text, "filled": tokenizer.decode(ids[len(before) :]), "gaps": fillings}

    def _likeliest(self, logits: torch.Tensor) -> list[Settings]:
        if logits.isnan().any():
            raise nan_error()
        chances, ids = logits.float().softmax(-1).topk(min(TOP, logits.shape[-1]))
        pairs = zip(ids.tolist(), chances.tolist(), strict=True)
        return [{"token": self.tokenizer.token(id), "id": id, "probability": chance} for id, chance in pairs]

    def count_tokens(self, answer: Settings) -> tuple[int, int]:
        return len(self.tokenizer.encode(answer["text"])), len(answer.get("gaps", ()))

    def answer_columns(self, answer: Settings) -> Settings:
        if "filled" in answer:
            return {"filled": answer["filled"]}
        return {"next": answer["next"][0]["token"], "probability": answer["next"][0]["probability"]}

    def format(self, answer: Settings) -> str:
        if "filled" in answer:
            return str(answer["filled"])
        return "\t".join(f"{one['token']} {one['probability']:.4f}" for one in answer["next"])

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> "Iterator[Score]":
        from elman.evaluation.score import score_texts

        return score_texts(model, self.tokenizer, _texts(texts), _piece(model, recipe))

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> "Iterator[Score]":
        from elman.evaluation.score import score_texts

        losses = None if is_masked(model) else StreamScorer(model, config, listen)
        return score_texts(model, self.tokenizer, _texts(texts), _piece(model, recipe), rows=1, losses=losses)

    # Inspection

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> "InspectedText":
        """The text after a start token, usually `<eos>`; for a masked model, before `<eos>` or in its frame."""
        from elman.inspection.inspected_text import InspectedText, inspect_language_model, text_run

        tokenizer, own = self.tokenizer, self._encode_lines(text)
        if not is_masked(model):
            return inspect_language_model(model, own, tokenizer.token, tokenizer.start_id)
        before, after = _around(model, tokenizer)
        ids = [*before, *own, *after]
        tokens = {"": [tokenizer.token(id) for id in ids]}
        caution = "The model sees the token whose own score this is: nothing was hidden from it."
        return InspectedText(model, text_run(model, ids), tokens, "own", tokenizer.token, ids, caution=caution)

    def _encode_lines(self, text: str) -> list[int]:
        """Where a line break is no token, each line is a document, with `<eos>` between two."""
        tokenizer = self.tokenizer
        line_break = tokenizer.encode("\n").tolist()
        if line_break and tokenizer.unk_id not in line_break:
            return tokenizer.encode(text).tolist()
        lines = [tokenizer.encode(line).tolist() for line in text.split("\n") if line]
        return [id for number, line in enumerate(lines) for id in ([tokenizer.eos_id] * bool(number) + line)]

    # Races

    def example_values(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> ExampleValues:
        """Nats and tokens of each document, or chunk of a long text; the loss by token frequency."""
        from elman.evaluation.likelihood import batch_losses

        batches, _ = self.evaluation_batches(prepared, split, trained.recipe)
        seen = np.bincount(prepared.stores["train"].tokens, minlength=self.tokenizer.vocab_size)
        times, nats = list[NDArray[Any]](), list[NDArray[Any]]()
        rows: list[torch.Tensor] = []
        for batch, losses, real in batch_losses(trained.model, batches):
            rows.append(torch.stack([losses.sum(1), real.sum(1).double()]))
            times.append(seen[batch.targets[real].numpy()])
            nats.append(losses[real].numpy())
        frequencies, ones = np.concatenate(times), np.ones(sum(map(len, times)))
        tables = {"by_frequency": class_means(frequencies, np.array(FREQUENCIES), np.concatenate(nats), ones, "loss")}
        values, weights = torch.cat(rows, dim=1).numpy()
        return ExampleValues(values, weights, tables)

    def race_outputs(
        self, models: "Sequence[TrainedModel]", prepared: PreparedData, split: Any, most: int, longest: int
    ) -> Iterator[ExampleOutput]:
        """Scores are log-probabilities in nats."""
        documents = islice(prepared.corpus.documents(split), most)
        texts = [document.text for document in documents if 0 < len(document.text) <= longest]
        columns = [[score.log_prob for score in trained.score(texts)] for trained in models]
        for text, scores in zip(texts, zip(*columns, strict=True), strict=True):
            yield ExampleOutput(text, "", [f"{-score:.1f}" for score in scores], list(scores))

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        model, length = trained.model, trained.recipe.training.sequence_length
        if is_masked(model):
            return InferenceWork()

        def state_after(tokens: torch.Tensor) -> Any:
            return model(tokens, model.initial_state(1))[1]

        return InferenceWork("generation_tokens_per_second", _generated(model), state_after, CONTEXTS, length)


def _generated(model: Any) -> Iterator[int]:
    """One token per turn, by the engine that `elman generate` selects for long texts."""
    config = GenerationConfig(temperature=0, max_tokens=GENERATED, stop_at_end=False, seed=0)
    while True:
        for _ in generate_tokens(model, [[]], config, eos_id=0):
            yield 1


def _around(model: Any, tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens before and after a text that a masked model reads."""
    frame = frame_of(model)
    return ([frame[0]], [frame[1]]) if frame else ([], [tokenizer.eos_id])


def _piece(model: Any, recipe: "Recipe") -> int:
    """Number of tokens scored at once: for a masked model, at most the sequence length of its training."""
    from elman.evaluation.score import LENGTH

    return recipe.training.sequence_length if is_masked(model) else LENGTH


def _texts(lines: Iterable[Any], with_gaps: bool = False) -> Iterator[str]:
    """The texts of lines, which for a masked model must have gaps."""
    from elman.pipeline.tasks.lines import numbered, text_of

    def read(line: Any) -> str:
        text = text_of(line, "text")
        if with_gaps and GAP not in text:
            raise DataError(f"a masked model fills gaps, but there is none in {text!r}", remedy=f"write {GAP} for each")
        return text

    return numbered(lines, read)
