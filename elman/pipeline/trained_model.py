"""A trained model ready to use: `elman.load("runs/mine")` speaks, scores, and lets one look inside."""

import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from elman.config import read_yaml
from elman.errors import ConfigError, RunError
from elman.evaluation import Score, score_texts
from elman.evaluation.score import LENGTH
from elman.generation import Ensemble, Generated, GenerationConfig, StreamScorer, generate, stream
from elman.inspection.inspected_text import InspectedText
from elman.inspection.precision import in_precision
from elman.inspection.trace import Trace, trace
from elman.models import LIKELIHOOD_OF, EncoderDecoder, masked_model_error, prediction_of
from elman.models.hugging_face import is_hugging_face
from elman.ops import taps
from elman.pipeline.devices import choose_device, choose_threads
from elman.pipeline.recipe import Recipe, read_recipe
from elman.pipeline.tasks import Task
from elman.pipeline.tasks.language import LanguageModelling
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.searching import SearchConfig
from elman.pipeline.tasks.translate import Translate
from elman.runs import Run
from elman.tokenizers import Tokenizer


def load(path: str | Path, device: str = "auto", others: Sequence[str | Path] = ()) -> "TrainedModel":
    """The best model of a run folder (the last one where none was validated).

    With `others`, runs that translate between the same tokens, the mean of all their probabilities.
    """
    if others:
        return _together([load(place, device) for place in (path, *others)])
    if is_hugging_face(path):
        raise RunError(f"{path}: a Hugging Face folder, not a run; make one of it with: elman import {path}")
    run = Run.open(path)
    recipe = read_recipe(read_yaml(run.config))
    task = recipe.kind.load(run.folder, recipe)
    shelf = run.shelf
    if shelf.empty:
        raise RunError(f"{path}: has no checkpoint yet; train it first, or wait for its first save")
    checkpoint = shelf.load(training=False)
    model = task.build(recipe.model)
    model.load_state_dict(checkpoint.weights)
    place = choose_device(device)
    choose_threads(recipe, place)
    return TrainedModel(model.to(place).eval(), task, recipe, checkpoint.step, str(path))


def _together(models: Sequence["TrainedModel"]) -> "TrainedModel":
    first = models[0]
    if not all(isinstance(one.model, EncoderDecoder) for one in models):
        raise ConfigError("only models that translate word after word answer together")
    if len({one.task.fingerprint() for one in models if isinstance(one.task, Translate)}) > 1:
        raise ConfigError("models that answer together need the same tokens: train them on the same data")
    return TrainedModel(Ensemble([one.model for one in models]), first.task, first.recipe, first.step)


def _texts(lines: Iterable[Any]) -> Iterator[str]:
    return numbered(lines, lambda line: text_of(line, "text"))


class TrainedModel:
    """Model, recipe and what its task learnt of the data, together. `.model` is a plain `nn.Module`."""

    def __init__(self, model: Any, task: Task, recipe: Recipe, step: int = 0, run: str = ""):
        self.model, self.task, self.recipe, self.step, self.run = model, task, recipe, step, run

    @property
    def tokenizer(self) -> Tokenizer:
        """Of a language model; asking others for what only language models do is an error."""
        if not isinstance(self.task, LanguageModelling):
            raise ConfigError(
                f"the run is a model of task {self.task.name}: use elman predict and elman eval, or .predict()"
            )
        return self.task.tokenizer

    def predict(self, lines: str | Iterable[Any], *, probabilities: bool = False, **search: Any) -> Any:
        """The answer for one text, or (one after the other) for many: labels, tags, a translation, what comes next.

        Lines are texts, or dictionaries with a text, words or a source; a target beside its source is scored (`given`)
        where the model writes word after word. `search` are settings of the recipe's section
        of that name, such as beam_size.
        """
        if isinstance(lines, str):
            (answer,) = self.predict([lines], probabilities=probabilities, **search)
            return answer
        return self._answers(lines, self.searching(search), probabilities)

    def searching(self, search: Mapping[str, Any]) -> Recipe:
        """Its recipe with other settings of the search; those of other tasks look for nothing."""
        if search and not isinstance(self.task, Translate):
            given = ", ".join(search)
            raise ConfigError(f"{given}: only translations are searched for; the run is of task {self.task.name}")
        settings = SearchConfig.make({**self.recipe.search.plain(), **search}, where="search")
        return self.recipe.model_copy(update={"search": settings})

    def _answers(self, lines: Iterable[Any], recipe: Recipe, probabilities: bool) -> Iterator[Any]:
        self.task.asides()  # of others
        yield from self.task.predict(self.model, lines, recipe, probabilities)
        for note in self.task.asides():
            warnings.warn(note, stacklevel=2)

    @property
    def kind(self) -> str:
        """What its scores are: likelihood, or pseudo-likelihood, which compares with its like only."""
        return LIKELIHOOD_OF[prediction_of(self.model)]

    def generate(self, prompt: str = "", **settings: Any) -> str:
        """What the model writes after the prompt; settings as in the recipe's section `generation`."""
        return generate(self.model, self.tokenizer, prompt, self._generation(settings))

    def generate_batch(self, prompts: Sequence[str], **settings: Any) -> list[Generated]:
        """Several prompts at once, each with its tokens, log-probability and reason to end."""
        return generate(self.model, self.tokenizer, list(prompts), self._generation(settings))

    def stream(self, prompt: str = "", **settings: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece."""
        return stream(self.model, self.tokenizer, prompt, self._generation(settings))

    def score(self, texts: str | Iterable[Any], target: str | None = None) -> Any:
        """Log-probability and bits per byte of one text, or (one after the other) of many.

        Of a masked model it is the pseudo-log-likelihood, in pieces as long as those it was trained on. A model that
        translates scores the target of a source: `score("a dog", "un chien")`, or many pairs of texts.
        """
        if target is not None and not isinstance(self.task, Translate):
            raise ConfigError(f"a target is scored by models that translate, but the run's task is {self.task.name}")
        if isinstance(texts, str):
            return next(iter(self.score([texts if target is None else (texts, target)])))
        if isinstance(self.task, Translate):
            return self.task.forcing(self.model, self.recipe).scores(texts)
        return score_texts(self.model, self.tokenizer, _texts(texts), self._piece)

    def follow(
        self,
        texts: Iterable[Any],
        engine: str = "auto",
        weights: str = "fp32",
        listen: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Score]:
        """The same scores, each as soon as its text comes; engine and weights as in the recipe's section `generation`.

        `listen` hears what reads the texts, and why.
        """
        if isinstance(self.task, Translate):
            raise ConfigError("pairs are scored many together, not as they come: leave --stream out, or use .score()")
        config = GenerationConfig.make({"engine": engine, "weights": weights})
        losses = None if prediction_of(self.model) == "masked" else StreamScorer(self.model, config, listen)
        return score_texts(self.model, self.tokenizer, _texts(texts), self._piece, rows=1, losses=losses)

    def record(self, *sites: str) -> AbstractContextManager[taps.Recording]:
        """Collect what passes at some sites while the block runs: `with model.record("*.gate.*") as seen: ...`."""
        return taps.record(*sites)

    def edit(self, changes: Mapping[str, taps.Edit]) -> AbstractContextManager[None]:
        """Change what passes: `with model.edit({"layers.0.lstm.gate.forget@3": 1.0}): ...`."""
        return taps.edit(changes)

    def reading(self, text: str, target: str | None = None, precision: str = "float32") -> InspectedText:
        """A text as this model reads it: what `elman.inspection` looks at. A translation may be given its target.

        In float64 it is a copy of the model that reads: for gradients smaller than float32 has numbers for.
        """
        found = self.task.reading(in_precision(self.model, precision), text, self.recipe, target)
        words = [repr(text), *([repr(target)] if target is not None else [])]
        words += [f"precision={precision!r}"] if precision != "float32" else []
        return replace(found, call=f"elman.load({self.run!r}).reading({', '.join(words)})" if self.run else "")

    def trace(self, text: str, sites: Sequence[str] = ("*",), target: str | None = None) -> Trace:
        """Read a text once and keep what passed at the sites: arrays (time, ...) beside the tokens.

        Of a language model the start, `<eos>` as a rule, stands before it; of a masked model `<eos>` after it.
        """
        words = ["elman", "inspect", "trace", self.run, "--text", text]
        words += [word for site in sites if site != "*" for word in ("--sites", site)]
        words += ["--target", target] if target else []
        known = self.run and not taps.listening()  # what is edited is not in the command
        return trace(self.reading(text, target), sites, self.of, shlex.join(words) if known else "")

    @property
    def of(self) -> str:
        """What it is, under a picture of it."""
        return f"{self.task.name}, step {self.step:,}"

    def sites(self) -> dict[str, tuple[int, ...]]:
        """Every site with the shape it has for one token."""
        text = "" if isinstance(self.task, LanguageModelling) else "a"
        return {site: tuple(values.shape[1:]) for site, values in self.trace(text, target="").data.items()}

    @property
    def _piece(self) -> int:
        """How many tokens are scored at once: a masked model knows no longer pieces than those of its training."""
        return self.recipe.training.sequence_length if prediction_of(self.model) == "masked" else LENGTH

    def _generation(self, settings: Mapping[str, Any]) -> GenerationConfig:
        if prediction_of(self.model) == "masked":
            raise masked_model_error()
        return GenerationConfig.make({**self.recipe.generation.plain(), **settings}, where="generation")
