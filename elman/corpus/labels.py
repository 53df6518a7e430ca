"""Labels as numbers: what a classifier answers with, learned from training data and kept beside the model."""

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
from elman.corpus.labelled_corpus import Labelled
from elman.errors import ConfigError, DataError, nearest

AT_ONCE = 1024  # texts encoded together
UNSEEN, CUT = "label unseen in training: text left out", "text cut at max_tokens"
Weights = Literal["none", "balanced"] | dict[str, float]


@dataclass(frozen=True)
class LabelSet:
    """The names of all labels, in the order of their numbers, and how often training data has each."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    examples: int
    several: bool
    """Whether a text can have more than one label, or none."""

    @classmethod
    def of(cls, texts: Iterable[Labelled]) -> "LabelSet":
        counts: Counter[str] = Counter()
        examples, several, where = 0, False, ""
        for text in texts:
            counts.update(text.labels)
            examples, several, where = examples + 1, several or len(text.labels) != 1, text.source
        if len(counts) < (1 if several else 2):
            found = f"only the label {next(iter(counts))!r}" if counts else "no label at all"
            raise DataError(f"{found} in {examples} texts: there is nothing to tell apart", file=where or None)
        names = sorted(counts)
        return cls(tuple(names), tuple(counts[name] for name in names), examples, several)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def number(self, text: Labelled, label: str) -> int:
        """The number of a label; one that training data did not have is an error that says where it stands."""
        if label not in self.numbers:
            known = ", ".join(self.names[:20]) + ", …" * (len(self.names) > 20)
            raise DataError(
                f"label {label!r} was not seen in training{nearest(label, self.names)}; known: {known}",
                file=text.source or None,
                line=text.line or None,
            )
        return self.numbers[label]

    def target(self, text: Labelled) -> int | NDArray[np.uint8]:
        """The number of a text's label, or a one for each of several."""
        numbers = [self.number(text, label) for label in text.labels]
        if self.several:
            ones = np.zeros(len(self), dtype=np.uint8)
            ones[numbers] = 1
            return ones
        if len(numbers) != 1:
            raise DataError(
                f"{len(numbers)} labels, where each text in training has one", file=text.source, line=text.line or None
            )
        return numbers[0]

    def weights(self, choice: Weights) -> list[float] | None:
        """What the loss of each label is multiplied by; balanced: as if all were equally frequent.

        Of several labels, it is the loss of those a text has, against those it has not.
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
                raise ValueError("names and counts do not fit")
            return cls(names, counts, int(content["examples"]), bool(content["several"]))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=path) from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"not a set of labels: {error}", file=path) from None


def label_rows(
    texts: Iterable[Labelled],
    labels: LabelSet,
    encode_batch: Callable[[list[str]], list[NDArray[Any]]],
    *,
    unseen: Literal["error", "count"] = "error",
    max_tokens: int = 0,
    repairs: Repairs | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows for a store of examples: `text` (ids) and `label` (a number, or a one for each of several).

    A text with an unseen label is an error, or left out and counted; one of more than `max_tokens` tokens, if that is
    set, is cut and counted.
    """
    repairs = Repairs() if repairs is None else repairs
    stream = iter(texts)
    while some := list(islice(stream, AT_ONCE)):
        for text, ids in zip(some, encode_batch([text.text for text in some]), strict=True):
            if unseen == "count" and not {*text.labels} <= labels.numbers.keys():
                repairs.add(UNSEEN, text.source, text.line)
                continue
            if max_tokens and len(ids) > max_tokens:
                repairs.add(CUT, text.source, text.line)
            yield {"text": ids[:max_tokens] if max_tokens else ids, "label": labels.target(text)}
