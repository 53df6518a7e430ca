"""Label sets: label indices of a classifier, learned from training data and stored beside the model."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elman.corpus.document import Repairs
from elman.corpus.labelled_corpus import LabelledText
from elman.errors import ConfigError, DataError, nearest

BATCH = 1024  # texts that are encoded together
UNSEEN, CUT = "label not in training: text removed", "text truncated to max_tokens"
Weights = Literal["none", "balanced"] | dict[str, float]


@dataclass(frozen=True)
class LabelSet:
    """Label names by index, and their counts in training data."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    examples: int
    several: bool
    """Multi-label: whether a text can have several labels or none."""

    @classmethod
    def of(cls, texts: Iterable[LabelledText]) -> "LabelSet":
        counts: Counter[str] = Counter()
        examples, several, where = 0, False, ""
        for text in texts:
            counts.update(text.labels)
            examples, several, where = examples + 1, several or len(text.labels) != 1, text.source
        if len(counts) < (1 if several else 2):
            found = f"only the label {next(iter(counts))!r}" if counts else "no label at all"
            raise DataError(f"{found} in {examples} texts: nothing to classify", file=where or None)
        names = sorted(counts)
        return cls(tuple(names), tuple(counts[name] for name in names), examples, several)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def number(self, text: LabelledText, label: str) -> int:
        """The index of a label; a label that is not in the training data is an error with its location."""
        if label not in self.numbers:
            known = ", ".join(self.names[:20]) + ", …" * (len(self.names) > 20)
            raise DataError(
                f"label {label!r} was not seen in training{nearest(label, self.names)}; known: {known}",
                file=text.source or None,
                line=text.line or None,
            )
        return self.numbers[label]

    def target(self, text: LabelledText) -> int | NDArray[np.uint8]:
        """The index of a text's label, or in multi-label data a 0/1 vector."""
        numbers = [self.number(text, label) for label in text.labels]
        if self.several:
            ones = np.zeros(len(self), dtype=np.uint8)
            ones[numbers] = 1
            return ones
        if len(numbers) != 1:
            raise DataError(
                f"{len(numbers)} labels, but each training text has one", file=text.source, line=text.line or None
            )
        return numbers[0]

    def weights(self, choice: Weights) -> list[float] | None:
        """Class weights of the loss; balanced: inverse to the label's frequency.

        In multi-label data: the weight of positive labels.
        """
        if choice == "none":
            return None
        if choice == "balanced":
            if self.several:
                return [(self.examples - count) / count for count in self.counts]
            return [self.examples / (len(self) * count) for count in self.counts]
        for name in choice:
            if name not in self.names:
                known = ", ".join(self.names)
                raise ConfigError(f"class_weights: no label {name!r}{nearest(name, self.names)}; known: {known}")
        return [choice.get(name, 1.0) for name in self.names]

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "LabelSet":
        try:
            content: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            names, counts = tuple(map(str, content["names"])), tuple(map(int, content["counts"]))
            if not names or len(counts) != len(names) or len({*names}) != len(names):
                raise ValueError("names and counts do not match")
            return cls(names, counts, int(content["examples"]), bool(content["several"]))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=path) from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"not a label set: {error}", file=path) from None


def label_rows(
    texts: Iterable[LabelledText],
    labels: LabelSet,
    encode_batch: Callable[[list[str]], list[NDArray[Any]]],
    *,
    unseen: Literal["error", "count"] = "error",
    max_tokens: int = 0,
    repairs: Repairs | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of an example store: `text` (ids) and `label` (index or 0/1 vector).

    A text with an unknown label is an error, or removed and counted; a text of more than `max_tokens` tokens is
    truncated and counted.
    """
    repairs = Repairs() if repairs is None else repairs
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        for text, ids in zip(batch, encode_batch([text.text for text in batch]), strict=True):
            if unseen == "count" and not {*text.labels} <= labels.numbers.keys():
                repairs.add(UNSEEN, text.source, text.line)
                continue
            if max_tokens and len(ids) > max_tokens:
                repairs.add(CUT, text.source, text.line)
            yield {"text": ids[:max_tokens] if max_tokens else ids, "label": labels.target(text)}
