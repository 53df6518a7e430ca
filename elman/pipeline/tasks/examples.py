"""What tasks on examples share: a store, buckets of similar length, and the loss that training is followed by."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elman.batches import Buckets, Examples, ExampleStore, collate
from elman.batches.groups import groups
from elman.corpus import Corpus, Repairs
from elman.errors import DataError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.pipeline.tasks.base import Judged, Prepared, Task, changed
from elman.pipeline.tasks.places import learned_places, longer, told
from elman.training import Validation

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

AT_ONCE = 256  # lines that are answered together, so that batches can be of similar length


class ExampleTask(Task):
    """Of each example the same fields; `by` names those whose lengths shall be similar within a batch."""

    by: ClassVar[tuple[str, ...]]

    def unit_of(self, model: Any) -> str:
        """The field over whose positions the loss is a mean; none for a mean over examples."""
        return ""

    @abstractmethod
    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[Any, list[str]]]:
        """Lines for `predict`, each with the right answer, in parts."""

    def question(self, line: Any) -> str:
        """One of these lines as text."""
        return str(line)

    @abstractmethod
    def parts(self, answer: dict[str, Any]) -> list[str]:
        """An answer of `predict`, in parts that are right or wrong each by itself."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Of all that decides which numbers stand for what."""

    def store(self, corpus: Corpus, split: Any, folder: Path) -> ExampleStore:
        whole = sha256(f"{corpus.fingerprint(split)}:{self.fingerprint()}".encode()).hexdigest()
        try:
            store = ExampleStore(folder, split)
        except DataError:  # not there, or not whole
            repairs = Repairs()
            rows = list(self.rows(corpus, split, repairs))
            corpus.notice(split, repairs)
            if not rows:
                raise DataError(f"no example for {split}", file=", ".join(corpus.sources(split)[:3])) from None
            return ExampleStore.build(rows, folder, split, whole)
        if store.fingerprint != whole:
            raise changed(folder.parent)
        return store

    def places(self, model: Any) -> dict[str, int | None]:
        """How many learned positions there are for each field that is read."""
        return {self.by[0]: learned_places(model)}

    def too_long(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        notes: list[str] = []
        for split, store in prepared.stores.items():
            for field, places in self.places(model).items():
                what = f"of {len(store):,} {self.unit} of {split} {self._has(field)}"
                notes += told(longer(store.lengths(field), places), what, places)
        return notes

    def _has(self, field: str) -> str:
        return "are" if len(self.by) == 1 else f"have a {field}"

    @cached_property
    def _long_lines(self) -> Counter[tuple[str, int | None]]:
        return Counter()

    def watch(self, model: Any, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count those of some lines that are too long, for `asides`."""
        for field, places in self.places(model).items():
            self._long_lines[field, places] += longer((len(row[field]) for row in rows if field in row), places)

    def asides(self) -> list[str]:
        found = [
            note
            for (field, places), count in self._long_lines.items()
            for note in told(count, f"lines {self._has(field)}", places)
        ]
        self._long_lines.clear()
        return found

    def size(self, store: ExampleStore) -> int:
        return len(store)

    def describe(self, store: ExampleStore) -> dict[str, Any]:
        """How many, and how long they are."""
        facts: dict[str, Any] = {self.unit: len(store)}
        for field in self.by:
            sizes = store.lengths(field)
            facts |= {f"mean {field} length": float(sizes.mean()), f"longest {field}": int(sizes.max())}
        return facts

    def training_batches(self, prepared: Prepared, recipe: "Recipe") -> Buckets:
        model = self.smallest(recipe.model)
        store = prepared.stores["train"]
        return Buckets(store, recipe.training.batch_size, recipe.seed, by=self.by, unit=self.unit_of(model))

    def batches(self, model: Any, store: ExampleStore, recipe: "Recipe") -> Iterator[Examples]:
        """Every example once, on the model's device; `numbers(store, recipe)` tells which they are."""
        device = device_of(model)
        for batch in self._buckets(model, store, recipe).epoch(0):
            yield batch.to(device)

    def numbers(self, store: ExampleStore, recipe: "Recipe") -> np.ndarray:
        """Which example stands where in `batches`, one after another."""
        buckets = self._buckets(None, store, recipe)
        return np.concatenate([buckets.numbers(0, index) for index in range(buckets.length_of(0))])

    def _buckets(self, model: Any, store: ExampleStore, recipe: "Recipe") -> Buckets:
        unit = "" if model is None else self.unit_of(model)
        return Buckets(store, recipe.evaluation.batch_size, by=self.by, unit=unit, shuffle=False)

    def loss(self, model: Any, store: ExampleStore, recipe: "Recipe") -> float:
        """Nats per unit over all examples."""
        nats, real = 0.0, 0
        with inference_mode(model):
            for batch in self.batches(model, store, recipe):
                nats, real = nats + float(model.batch_loss(batch)[0]), real + batch.real
        return nats / max(1, real)

    def validate(self, model: Any, prepared: Prepared, recipe: "Recipe") -> Validation:
        """The loss, and the figure that the recipe chooses by."""
        loss, figure = self.loss(model, prepared.stores["valid"], recipe), recipe.evaluation.choose_by
        if figure == "loss":
            return Validation(loss, loss)
        scores = self.quick_judge(model, prepared, recipe).scores
        worse_if_more = figure.endswith(("_rate", "_error"))
        return Validation(loss, scores[figure] if worse_if_more else -scores[figure], {figure: scores[figure]})

    def quick_judge(self, model: Any, prepared: Prepared, recipe: "Recipe") -> Judged:
        """What validation chooses by; a task may spend less on it than at the end."""
        return self.judge(model, prepared, recipe, "valid")


def longest(recipe: "Recipe") -> int:
    """Tokens beyond which texts are cut and pairs left out of training; 0 for none."""
    return recipe.data.max_tokens  # type: ignore[attr-defined]


def chunks(lines: Iterable[Any], size: int = AT_ONCE) -> Iterator[list[Any]]:
    """Lists of lines, as they come."""
    return groups(lines, size)


def similar(rows: Sequence[Mapping[str, Any]], by: str, size: int, model: Any) -> Iterator[tuple[list[int], Examples]]:
    """All rows in batches of similar length on the model's device, each with the places its rows came from."""
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place][by]))
    device = device_of(model)
    for some in chunks(order, size):
        yield some, collate([rows[place] for place in some]).to(device)
