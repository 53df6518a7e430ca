"""A trained model ready to use: `elman.load("runs/mine")` generates, predicts, scores and can be inspected."""

import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from elman.errors import ConfigError, RunError
from elman.generation import Ensemble, Generated, GenerationConfig, generate, stream
from elman.models import LIKELIHOOD_OF, EncoderDecoder, is_masked, masked_model_error, prediction_of
from elman.models.stack import count_parameters
from elman.ops import taps
from elman.pipeline.devices import choose_device, choose_threads
from elman.pipeline.recipe import Recipe, stored_recipe
from elman.pipeline.tasks import Task
from elman.pipeline.tasks.base import no_text
from elman.pipeline.tasks.search import SearchConfig
from elman.runs import Run
from elman.untrusted import read_json

if TYPE_CHECKING:
    from elman.inspection.inspected_text import InspectedText
    from elman.inspection.result import Inspection
    from elman.inspection.summary import Summary
    from elman.inspection.trace import Trace
    from elman.tokenizers import Tokenizer


@torch.inference_mode(False)  # its weights can be trained, wherever it is loaded
def load(path: str | Path, device: str = "auto", others: Sequence[str | Path] = ()) -> "TrainedModel":
    """The best model of a run folder (the last one where none was validated), or the one of a checkpoint in it, such as
    `runs/mine/last/step-00000100`.

    With `others`, runs that translate between the same tokens, the mean of all their probabilities.
    """
    if others:
        return _together([load(place, device) for place in (path, *others)])
    run = _open(path)
    recipe = stored_recipe(run)
    task = recipe.task_class.from_files(run.folder, recipe)
    if run.shelf.empty:
        raise RunError(f"{path}: has no checkpoint yet; train it first, or wait for its first save")
    checkpoint = run.load()
    outline = task.outline(recipe.model)
    if not getattr(outline, "fits_by_counting", False):  # else the weights decide the size
        checkpoint.load_into(outline, path)  # rejects a model larger than the weights before it takes memory
    model = task.build(recipe.model)
    checkpoint.load_into(model, path)
    place = choose_device(device)
    choose_threads(recipe, place)
    return TrainedModel(model.to(place).eval(), task, recipe, checkpoint.step, str(path))


def _open(path: str | Path) -> Run:
    try:
        return Run.open(path)
    except RunError:
        from elman.models.hugging_face import is_hugging_face

        if is_hugging_face(path):
            remedy = f"make one of it with: elman import {path}"
            raise RunError(f"{path}: a Hugging Face folder, not a run; {remedy}") from None
        raise


def _together(models: Sequence["TrainedModel"]) -> "TrainedModel":
    first = models[0]
    if not all(isinstance(one.model, EncoderDecoder) for one in models):
        raise ConfigError("only models that translate word after word answer together")
    if len({one.task.fingerprint() for one in models}) > 1:
        raise ConfigError("models that answer together need the same tokens: train them on the same data")
    return TrainedModel(Ensemble([one.model for one in models]), first.task, first.recipe, first.step)


class TrainedModel:
    """Model, recipe and what its task learnt of the data, together. `.model` is a plain `nn.Module`."""

    def __init__(self, model: Any, task: Task, recipe: Recipe, step: int = 0, run: str = ""):
        self.model, self.task, self.recipe, self.step, self.run = model, task, recipe, step, run

    @property
    def results(self) -> dict[str, Any]:
        """What its training ended with: scores by split, samples, speed, goals; empty of a run that has not ended."""
        path = Path(self.run, "results.json")
        return read_json(path) if self.run and path.exists() else {}

    @property
    def tokenizer(self) -> "Tokenizer":
        """Of a model that generates text; an error for those of other tasks."""
        if not self.task.generates_text:
            raise no_text(self.task.name)
        return self.task.tokenizer  # type: ignore[attr-defined]

    def predict(
        self, lines: str | Iterable[Any], *, probabilities: bool = False, min_probability: float = 0.0, **search: Any
    ) -> Any:
        """The answer for one text, or an iterator over the answers for many: labels, tags, a translation, next tokens.

        Lines are texts, or dictionaries with a text, words or a source; a target beside its source is scored (`given`)
        where the model writes word after word. A classifier leaves answers below `min_probability` empty. `search` are
        settings of the recipe's section of that name, such as beam_size.
        """
        if isinstance(lines, str):
            (answer,) = self.predict([lines], probabilities=probabilities, min_probability=min_probability, **search)
            return answer
        if probabilities and not self.task.has_probabilities:
            raise ConfigError(f"predictions of task {self.task.name} have no probabilities; leave --probabilities out")
        if min_probability and not self.task.can_abstain:
            raise ConfigError(f"--min-probability goes with classifiers, not with task {self.task.name}")
        if not 0 <= min_probability <= 1:
            raise ConfigError(f"--min-probability {min_probability:g}: a probability is between 0 and 1")
        return self._answers(lines, self.with_search(search), probabilities, min_probability)

    def with_search(self, search: Mapping[str, Any]) -> Recipe:
        """The recipe with other settings of the section `search`, for tasks that have one."""
        if search and not self.task.searches:
            given = ", ".join(search)
            raise ConfigError(f"{given}: only translations are searched for; the run is of task {self.task.name}")
        settings = SearchConfig.make({**self.recipe.search.plain(), **search}, where="search")
        return self.recipe.model_copy(update={"search": settings})

    def _answers(
        self, lines: Iterable[Any], recipe: Recipe, probabilities: bool, min_probability: float
    ) -> Iterator[Any]:
        self.task.pop_warnings()  # of earlier calls
        answers = self.task.predict(self.model, lines, recipe, probabilities or min_probability > 0)
        hidden = () if probabilities else ("probabilities",)
        for answer in answers:
            if min_probability:
                sure = self.task.abstain(answer, min_probability)
                yield {name: value for name, value in sure.items() if name not in hidden}
            else:
                yield answer
        for note in self.task.pop_warnings():
            warnings.warn(note, stacklevel=2)

    @property
    def kind(self) -> str:
        """What its scores are: likelihood, or pseudo-likelihood, which compares with its like only."""
        return LIKELIHOOD_OF[prediction_of(self.model)]

    def generate(self, prompt: str = "", **settings: Any) -> str:
        """Generate text after a prompt; settings as in the recipe's section `generation`."""
        return generate(self.model, self.tokenizer, prompt, self._generation(settings), self.opening)

    def generate_batch(self, prompts: Sequence[str], **settings: Any) -> list[Generated]:
        """Several prompts at once, each with its tokens, log-probability and reason to end."""
        return generate(self.model, self.tokenizer, list(prompts), self._generation(settings), self.opening)

    def stream(self, prompt: str = "", **settings: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece."""
        return stream(self.model, self.tokenizer, prompt, self._generation(settings), self.opening)

    @cached_property
    def opening(self) -> list[int]:
        """The tokens of held-out text that a text without a prompt follows, where the model has not learnt how texts
        begin; usually none."""
        return self.task.opening(Run.at(self.run).data) if self.run else []

    def score(self, texts: str | Iterable[Any], target: str | None = None) -> Any:
        """Log-probability and bits per byte of one text, or (one after the other) of many.

        Of a masked model it is the pseudo-log-likelihood, in pieces as long as those it was trained on. A model that
        translates scores the target of a source: `score("a dog", "un chien")`, or many pairs of texts.
        """
        if target is not None and not self.task.has_targets:
            raise ConfigError(f"a target is scored by models that translate, but the run's task is {self.task.name}")
        if isinstance(texts, str):
            return next(iter(self.score([texts if target is None else (texts, target)])))
        return self.task.score(self.model, texts, self.recipe)

    def follow(
        self,
        texts: Iterable[Any],
        engine: str = "auto",
        weights: str = "fp32",
        listen: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Any]:
        """The same scores, each as soon as its text comes; engine and weights as in the recipe's section `generation`.

        `listen` is called with the engine that reads the texts, and why.
        """
        config = GenerationConfig.make({"engine": engine, "weights": weights})
        return self.task.stream_scores(self.model, texts, self.recipe, config, listen)

    def record(self, *sites: str) -> AbstractContextManager[taps.Recording]:
        """Record activations at some taps inside the block: `with model.record("*.gate.*") as seen: ...`."""
        return taps.record(*sites)

    def edit(self, changes: Mapping[str, taps.Edit]) -> AbstractContextManager[None]:
        """Edit activations: `with model.edit({"layers.0.lstm.gate.forget@3": 1.0}): ...`."""
        return taps.edit(changes)

    def reading(self, text: str, target: str | None = None, precision: str = "float32") -> "InspectedText":
        """A text as this model reads it, for `elman.inspection`. A translation may be given its target.

        In float64 it is a copy of the model that reads: for gradients smaller than float32 has numbers for.
        """
        from elman.inspection.inspected_text import in_precision

        found = self.task.inspect(in_precision(self.model, precision), text, self.recipe, target)
        words = [repr(text), *([repr(target)] if target is not None else [])]
        words += [f"precision={precision!r}"] if precision != "float32" else []
        return replace(found, call=f"elman.load({self.run!r}).reading({', '.join(words)})" if self.run else "")

    def trace(self, text: str, sites: Sequence[str] = ("*",), target: str | None = None) -> "Trace":
        """Read a text and record activations at the taps: arrays (time, ...) with the tokens.

        For a language model a start token, usually `<eos>`, comes first; for a masked model `<eos>` comes last.
        """
        from elman.inspection.trace import trace

        words = ["elman", "inspect", "trace", self.run, "--text", text]
        words += [word for site in sites if site != "*" for word in ("--sites", site)]
        words += ["--target", target] if target else []
        known = self.run and not taps.listening()  # edits cannot be given in a command
        return trace(self.reading(text, target), sites, self.of, shlex.join(words) if known else "")

    def attention(
        self,
        text: str,
        target: str | None = None,
        *,
        layer: int | None = None,
        heads: Sequence[int] = (),
        marked: Sequence[str] = (),
    ) -> "Inspection":
        """Attention weights while a text is read: of each layer a tensor (heads, queries, keys) under its site.

        The figure has the maps of a layer, or of some heads (both counted from 1), their entropy and distance, and
        what share of the weight is on `marked` tokens. A translation is shown with its target.
        """
        from elman.inspection.attention import attention_figure

        return attention_figure(self.reading(text, target), self.of, layer, heads, marked)

    def gradients(self, text: str, target: str | None = None, *, precision: str = "float32") -> "Inspection":
        """How much each prediction depends on each token: `gradient` (predictions, tokens) has the norms of its
        gradient, `by distance` their mean, and for recurrent layers `….jacobian.norm` and `….jacobian.radius` how much
        one step of the state stretches it."""
        from elman.inspection.gradients import gradient_figure

        return gradient_figure(self.reading(text, target, precision), self.of)

    def gates(self, text: str, target: str | None = None) -> "Trace":
        """Every gate while a text is read: a trace of arrays (tokens, units)."""
        from elman.figures.colours import quantity_of

        found = self.trace(text, target=target)
        sites = [site for site in found if quantity_of(site) == "gate" and not site.startswith("characters.")]
        if not sites:
            raise ConfigError("no layer of this model has gates; model.trace(text) records what it has")
        return self.trace(text, sites, target)

    def predictions(
        self, text: str, target: str | None = None, *, position: int = -1, contrast: Sequence[str] = ()
    ) -> "Inspection":
        """What it predicts at each position: `likeliest`, `surprisal` of the `observed` outcome, its `rank`, `entropy`,
        and the `probability` (positions, outcomes) of all; of a regression the `number`.

        `gradient × input` and `leave-one-out` say how much each token counts for the prediction at `position`. The
        log-odds of two outcomes are drawn with `contrast`.
        """
        from elman.inspection.predictions import prediction_figure

        return prediction_figure(self.reading(text, target), self.of, position, contrast)

    def units(self, text: str, *, against: Sequence[str] = (), sites: Sequence[str] = ()) -> "Inspection":
        """What single units of the state do along a text of 80 tokens or more: activity (tokens, units) by site, its
        `….autocorrelation_time`, and the units that follow quotes, brackets, lines or subjects best (`score`, beside
        that by `chance`)."""
        from elman.inspection.units import unit_figure

        return unit_figure(self.reading(text), self.of, sites, against)

    def summary(self) -> "Summary":
        """Its layers with shapes and parameters, as a table that prints itself."""
        from elman.inspection.summary import Summary, parts_of

        return Summary(str(self), [*parts_of(self.model)])

    def __repr__(self) -> str:
        name, size = self.task.run_name(self.recipe.model), count_parameters(self.model)
        place = f", {self.run}" if self.run else ""
        return f"<{self.task.name} model {name}, {size:,} parameters, step {self.step:,}{place}>"

    @property
    def of(self) -> str:
        """The provenance line under a figure of this model."""
        return f"{self.task.name}, step {self.step:,}"

    def sites(self) -> dict[str, tuple[int, ...]]:
        """Every site with the shape it has for one token."""
        text = self.task.shortest_text
        return {site: tuple(values.shape[1:]) for site, values in self.trace(text, target="").data.items()}

    def _generation(self, settings: Mapping[str, Any]) -> GenerationConfig:
        if is_masked(self.model):
            raise masked_model_error()
        return GenerationConfig.make({**self.recipe.generation.plain(), **settings}, where="generation")
