"""Shared by tasks whose data are examples: a store, batches of similar length, and the loss that validation uses."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elman.batches import Buckets, Examples, ExampleStore, length_batches
from elman.batches.groups import groups, growing_groups
from elman.corpus import Corpus, Repairs
from elman.corpus.stored_corpus import StoredCorpus
from elman.errors import DataError
from elman.evaluation.inference_mode import Submit, device_of, inference_mode
from elman.pipeline.tasks.base import LITTLE, EvaluationResult, PreparedData, Task, data_changed
from elman.pipeline.tasks.position_checks import count_longer, learned_positions, length_warning
from elman.pipeline.tasks.race import FREQUENCIES, RIGHT, ExampleOutput, ExampleValues, InferenceWork, class_means
from elman.pipeline.tasks.settings import Settings
from elman.training.reports import Validation

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.trained_model import TrainedModel

CHUNK = 256  # lines predicted together, so that batches have similar lengths
MOST = 8192  # of them where predicting is quick; the first answers come after CHUNK
BATCH_TOKENS = 8192  # of short lines in a batch, with padding: preparing the recurrent matrix costs little then
LENGTH_CLASSES = 5  # of about as many examples each
TIMED_EXAMPLES = 64  # examples predicted to measure speed
SAMPLES, QUICK_SAMPLES = 5, 3  # predictions that are shown at the end, and at a validation
LONGEST = 200  # characters of a text in a sample
FEW_EXAMPLES = 20
Row = Mapping[str, Any]  # an encoded example
LOWER_IS_BETTER = ("_rate", "_error", "mse", "mae")


class ExampleTask(Task):
    """Examples with the same fields; batches are bucketed by the lengths of the fields in `by`."""

    by: ClassVar[tuple[str, ...]]
    paired_measure = "accuracy"
    table_measure: ClassVar[str] = "accuracy"
    """The score in tables by length or frequency."""

    @classmethod
    def missing(cls) -> list[str]:
        judge, default = ("grade", ExampleTask.grade) if cls.graded else ("answer_parts", ExampleTask.answer_parts)
        return [*super().missing(), *([judge] if getattr(cls, judge) is default else [])]

    # Data

    def loss_field(self, recipe: "Recipe") -> str:
        """The field over whose positions the loss is a mean; empty for a mean over examples."""
        return ""

    @abstractmethod
    def rows(self, corpus: Any, split: Any, repairs: Repairs) -> Iterator[Settings]:
        """Encoded examples; `repairs` counts what had to be cut or left out."""

    @abstractmethod
    def questions(self, corpus: Any, split: Any) -> Iterator[tuple[Any, list[str]]]:
        """Lines for `predict`, each with the right answer, in parts."""

    def question_text(self, line: Any) -> str:
        """One of these questions as text."""
        return str(line)

    def answer_parts(self, answer: Settings) -> list[str]:
        """An answer of `predict`, in parts that are right or wrong each by itself; for tasks that are not `graded`."""
        raise NotImplementedError

    def store(self, corpus: Corpus, split: Any, folder: Path) -> ExampleStore:
        fingerprint = sha256(f"{corpus.fingerprint(split)}:{self.fingerprint()}".encode()).hexdigest()
        try:
            store = ExampleStore(folder, split)
        except DataError:  # not there, or damaged
            if isinstance(corpus, StoredCorpus):
                if not (folder / f"{split}.json").exists():
                    corpus.documents()
                raise
            repairs = Repairs()
            rows = list(self.rows(corpus, split, repairs))
            corpus.notice(split, repairs)
            if not rows:
                raise DataError(f"no example for {split}", file=", ".join(corpus.sources(split)[:3])) from None
            return ExampleStore.build(rows, folder, split, fingerprint)
        if store.fingerprint != fingerprint:
            raise data_changed(folder.parent)
        return store

    def size(self, store: ExampleStore) -> int:
        return len(store)

    def describe(self, store: ExampleStore) -> Settings:
        """How many examples, and how long they are."""
        facts: Settings = {self.unit: len(store)}
        for field in self.by:
            sizes = store.lengths(field)
            facts |= {f"mean {field} length": float(sizes.mean()), f"longest {field}": int(sizes.max())}
        return facts

    def learned_positions(self, model: Any) -> dict[str, int | None]:
        """The number of learned positions for each field that is read."""
        return {self.by[0]: learned_positions(model)}

    def length_warnings(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        notes: list[str] = []
        for split, store in prepared.stores.items():
            for field, positions in self.learned_positions(model).items():
                what = f"of {len(store):,} {self.unit} of {split} {self._has(field)}"
                notes += length_warning(count_longer(store.lengths(field), positions), what, positions)
        return notes

    def _has(self, field: str) -> str:
        return "are" if len(self.by) == 1 else f"have a {field}"

    def notes(self, batches: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        examples = len(prepared.stores["train"])
        return [f"only {examples} {self.unit} to train on: {LITTLE}"] if examples < FEW_EXAMPLES else []

    def training_batches(self, prepared: PreparedData, recipe: "Recipe") -> Buckets:
        store, unit = prepared.stores["train"], self.loss_field(recipe)
        return Buckets(store, recipe.training.batch_size, recipe.seed, by=self.by, unit=unit)

    def batches(self, model: Any, store: ExampleStore, recipe: "Recipe") -> Iterator[Examples]:
        """Every example once, on the model's device, in the order of `order(store, recipe)`."""
        device = device_of(model)
        for batch in self._buckets(store, recipe).epoch(0):
            yield batch.to(device)

    def order(self, store: ExampleStore, recipe: "Recipe") -> NDArray[Any]:
        """Indices of the examples as `batches` yields them."""
        buckets = self._buckets(store, recipe)
        return np.concatenate([buckets.numbers(0, index) for index in range(buckets.length_of(0))])

    def _buckets(self, store: ExampleStore, recipe: "Recipe") -> Buckets:
        unit = self.loss_field(recipe)
        return Buckets(store, recipe.evaluation.batch_size, by=self.by, unit=unit, shuffle=False)

    # Evaluation

    def loss(self, model: Any, store: ExampleStore, recipe: "Recipe") -> float:
        """The training loss per unit over all examples."""
        total, count = 0.0, 0
        with inference_mode(model):
            for batch in self.batches(model, store, recipe):
                total, count = total + float(model.batch_loss(batch)[0]), count + batch.real
        return total / max(1, count)

    def validate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Validation:
        loss, metric = self.loss(model, prepared.stores["valid"], recipe), recipe.evaluation.choose_by
        if metric == "loss":
            return Validation(loss, loss)
        score = self.evaluate_quickly(model, prepared, recipe).scores[metric]
        return Validation(loss, score if metric.endswith(LOWER_IS_BETTER) else -score, {metric: score})

    def evaluate_quickly(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> EvaluationResult:
        """For validation during training; a task may search with less effort than at the end."""
        return self.evaluate(model, prepared, recipe, "valid")

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe", quick: bool = False) -> list[str]:
        """A few held-out texts with their answers, each with a tick or the truth."""
        split = "valid" if "valid" in prepared.stores else "train"
        asked = list(islice(self.questions(prepared.corpus, split), QUICK_SAMPLES if quick else SAMPLES))
        answers = self.predict(model, [line for line, _ in asked], recipe, False)
        return [self._sample(line, right, answer) for (line, right), answer in zip(asked, answers, strict=True)]

    def _sample(self, line: Any, right: list[str], answer: Settings) -> str:
        parts = [self.grade(answer, right[0])[0]] if self.graded else self.answer_parts(answer)
        verdict = RIGHT if parts == right else f"(true: {' '.join(right) or EMPTY})"
        return f"{shorten(self.question_text(line), LONGEST, placeholder=' …')} → {' '.join(parts) or EMPTY} {verdict}"

    # Prediction

    def count_long_lines(self, model: Any, rows: Iterable[Row]) -> None:
        """Remember how many lines are longer than the model has positions for, for `pop_warnings`."""
        for field, positions in self.learned_positions(model).items():
            lengths = (len(row[field]) for row in rows if field in row)
            self.long_lines[self._has(field), positions] += count_longer(lengths, positions)

    def windows(self, lines: Iterable[Any]) -> Iterator[list[Any]]:
        """The lines that are predicted together."""
        return growing_groups(lines, CHUNK, MOST) if self.window is None else groups(lines, self.window)

    def run_rows(
        self, model: Any, rows: Sequence[Row], recipe: "Recipe", run: Callable[[Examples, list[int]], Iterable[Any]]
    ) -> list[Any]:
        """The output for each row, in their order; `run` computes those of a batch of rows of similar length, whose
        indices it gets too."""
        self.count_long_lines(model, rows)
        outputs: list[Any] = [None] * len(rows)
        device = device_of(model)
        with inference_mode(model):
            for indices, batch in length_batches(rows, self.by[0], recipe.evaluation.batch_size):
                for index, output in zip(indices, run(batch.to(device), indices), strict=True):
                    outputs[index] = output
        return outputs

    def begin_rows(
        self, model: Any, rows: Sequence[Row], recipe: "Recipe", run: Callable[[Examples], Iterable[Any]], begin: Submit
    ) -> Callable[[], list[Any]]:
        """Begins the same for rows with small outputs, in larger batches where they are short; `begin` is that of
        `batch_threads`. Gives the function that waits for the outputs."""
        self.count_long_lines(model, rows)
        device, batches = device_of(model), length_batches(rows, self.by[0], recipe.evaluation.batch_size, BATCH_TOKENS)
        begun = [(indices, begin(run, batch.to(device))) for indices, batch in batches]

        def outputs() -> list[Any]:
            found: list[Any] = [None] * len(rows)
            for indices, future in begun:
                for index, output in zip(indices, future.result(), strict=True):
                    found[index] = output
            return found

        return outputs

    # Races: accuracy by length; speed in predicted examples

    def example_values(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> ExampleValues:
        result = self.evaluate(trained.model, prepared, trained.recipe, split)
        lengths = prepared.stores[split].lengths(self.by[0])
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_CLASSES + 1)[:-1], method="higher"))
        tables = {"by_length": class_means(lengths, edges, result.values, result.weights, self.table_measure)}
        if result.positions is not None:
            seen = Counter(self._words(prepared, "train"))
            times = np.array([seen[word] for word in self._words(prepared, split)])
            ones = np.ones(len(times))
            tables["by_frequency"] = class_means(
                times, np.array(FREQUENCIES), result.positions, ones, self.table_measure
            )
        return ExampleValues(result.values, result.weights, tables)

    def _words(self, prepared: PreparedData, split: str) -> Iterator[str]:
        """Words as they are written: rare ones have no id of their own."""
        return (word for line, _ in self.questions(prepared.corpus, split) for word in line["words"])

    def race_outputs(
        self, models: "Sequence[TrainedModel]", prepared: PreparedData, split: str, most: int, longest: int
    ) -> Iterator[ExampleOutput]:
        """Unless answers are `graded`, scores are shares of their parts that are right; a right one is a tick."""
        asked = list(islice(self.questions(prepared.corpus, split), most))
        lines = [line for line, _ in asked]
        columns = [trained.task.predict(trained.model, lines, trained.recipe, False) for trained in models]
        for (line, right), found in zip(asked, zip(*columns, strict=True), strict=True):
            if self.graded:
                expected, grades = right[0], [self.grade(one, right[0]) for one in found]
            else:
                expected, grades = _disputed(right, [self.answer_parts(one) for one in found])
            shown, scores = zip(*grades, strict=True)
            yield ExampleOutput(self.question_text(line), expected, list(shown), list(scores))

    def grade(self, answer: Settings, right: str) -> tuple[str, float]:
        """An answer as text, and its score: the higher the better; for tasks that are `graded`."""
        raise NotImplementedError

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        def turns() -> Iterator[int]:
            """One example per turn, from text to answer."""
            for line, _ in cycle(islice(self.questions(prepared.corpus, split), TIMED_EXAMPLES)):
                list(trained.predict([line]))
                yield 1

        return InferenceWork("answers_per_second", turns())


EMPTY = "–"  # shown for an empty output


def _disputed(right: Sequence[str], answers: Sequence[list[str]]) -> tuple[str, list[tuple[str, float]]]:
    """The right parts that some answer has not; and of each answer its wrong parts, with its share of right ones."""
    wrong = [[place for place, part in enumerate(right) if parts[place] != part] for parts in answers]
    places = sorted({place for some in wrong for place in some}) or range(len(right))
    shown = [_at(parts, some) or RIGHT for parts, some in zip(answers, wrong, strict=True)]
    scores = [1 - len(some) / max(1, len(right)) for some in wrong]
    return _at(right, places), list(zip(shown, scores, strict=True))


def _at(parts: Sequence[str], places: Iterable[int]) -> str:
    return " ".join(parts[place] or EMPTY for place in places)


def max_tokens(recipe: "Recipe") -> int:
    """Tokens beyond which texts are cut and pairs left out of training; 0 for no limit."""
    return recipe.data.max_tokens  # type: ignore[attr-defined]
