"""Examples with named fields (text and label, words and tags, sentence pairs), batched by length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from elman import files
from elman.batches.batch import EpochBatches
from elman.batches.documents import POOL, bucket_order
from elman.batches.store import AGAIN, check_hashes, hashes
from elman.errors import DataError
from elman.limits import limits
from elman.shapes import Lengths
from elman.untrusted import read_array, read_bytes

Value = int | float | NDArray[Any]  # a scalar or a row


class Ragged(NamedTuple):
    """Rows of unequal length, right-padded with zeros."""

    values: Tensor  # (rows, longest)
    lengths: Lengths

    def mask(self) -> Tensor:
        """True at real positions (rows, longest)."""
        return torch.arange(self.values.shape[1], device=self.values.device) < self.lengths[:, None]

    def padded(self, pads: int) -> Ragged:
        """The same rows with additional padding."""
        return self._replace(values=F.pad(self.values, (0, pads)))

    def repeated(self, times: int) -> Ragged:
        """The batch repeated `times` times."""
        return Ragged(self.values.repeat(times, 1), self.lengths.repeat(times))


class Examples(NamedTuple):
    """A batch. The loss is a mean over examples, or over the positions of field `unit`."""

    fields: dict[str, Tensor | Ragged]
    unit: str = ""
    fresh: bool = True

    @property
    def size(self) -> int:
        first = next(iter(self.fields.values()))
        return len(first.lengths if isinstance(first, Ragged) else first)

    @property
    def real(self) -> int:
        """The denominator of the summed loss."""
        return int(self.ragged(self.unit).lengths.sum()) if self.unit else self.size

    def ragged(self, name: str) -> Ragged:
        field = self.fields[name]
        assert isinstance(field, Ragged), f"field {name!r} has one value per example"
        return field

    def plain(self, name: str) -> Tensor:
        field = self.fields[name]
        assert isinstance(field, Tensor), f"field {name!r} is ragged"
        return field

    def rows(self, rows: slice) -> Examples:
        return self._replace(fields={name: _map(field, lambda x: x[rows]) for name, field in self.fields.items()})

    def padded(self, pads: int) -> Examples:
        """The batch with additional padding in every row."""
        padded = {name: field.padded(pads) for name, field in self.fields.items() if isinstance(field, Ragged)}
        return self._replace(fields={**self.fields, **padded})

    def to(self, device: str | torch.device) -> Examples:
        return self._replace(fields={name: _map(field, lambda x: x.to(device)) for name, field in self.fields.items()})


def collate(rows: Sequence[Mapping[str, Value]], unit: str = "") -> Examples:
    """Collates examples that are in no store into a batch."""
    fields: dict[str, Tensor | Ragged] = {}
    for name, first in rows[0].items():
        parts = [row[name] for row in rows]
        if isinstance(first, np.ndarray):
            fields[name] = _padded(*_flattened(parts), np.arange(len(rows)))
        else:
            fields[name] = torch.from_numpy(np.asarray(parts))
    return Examples(fields, unit)


def length_batches(
    rows: Sequence[Mapping[str, Any]], by: str, size: int, tokens: int = 0
) -> Iterator[tuple[list[int], Examples]]:
    """All rows in batches of similar length, longest first, each with the indices of its rows: `size` rows, or more as
    long as they have less than so many `tokens` together."""
    sizes = [len(row[by]) for row in rows]
    order, first = sorted(range(len(rows)), key=lambda place: -sizes[place]), 0
    while some := order[first : first + max(size, tokens // max(1, sizes[order[first]]))] if first < len(order) else []:
        yield some, collate([rows[place] for place in some])
        first += len(some)


def _flattened(parts: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows of unequal length as one array, and where each ends."""
    return np.concatenate(parts), np.cumsum([len(part) for part in parts], dtype=np.int64)


def _padded(flat: NDArray[Any], ends: NDArray[np.int64], numbers: NDArray[np.int64]) -> Ragged:
    """The rows with these indices."""
    starts = np.where(numbers > 0, ends[numbers - 1], 0)
    sizes = ends[numbers] - starts
    places = starts[:, None] + np.arange(int(sizes.max(initial=0)))
    real = np.arange(places.shape[1]) < sizes[:, None]
    values = np.zeros(places.shape, np.int64 if np.issubdtype(flat.dtype, np.integer) else np.float32)
    values[real] = flat[places[real]]
    return Ragged(torch.from_numpy(values), torch.from_numpy(sizes))


def _map(field: Tensor | Ragged, change: Any) -> Tensor | Ragged:
    return Ragged(change(field.values), change(field.lengths)) if isinstance(field, Ragged) else change(field)


class ExampleStore:
    """Columns in memory-mapped files `NAME.FIELD.npy`, ragged ones with `NAME.FIELD.ends.npy`; `NAME.json` is written
    last."""

    def __init__(self, folder: str | Path, name: str):
        self.folder, self.name = Path(folder), name
        path = self.folder / f"{name}.json"
        if not path.exists():
            raise DataError("no such example store, or its creation was interrupted", file=path)
        try:
            content = json.loads(read_bytes(path, limits().json_bytes, DataError, follow_links=True))
            self.count, self.fingerprint = int(content["count"]), str(content["fingerprint"])
            check_hashes(self.folder, content.get("files", {}))
            self.columns = {field: self._load(field) for field in content["plain"]}
            self.ragged = {field: (self._load(field), self._load(f"{field}.ends")) for field in content["ragged"]}
        except FileNotFoundError as error:
            raise DataError("no such example store, or its creation was interrupted", file=error.filename) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError) as error:
            raise DataError(f"damaged example store: {error}", file=path, remedy=AGAIN) from None
        wrong = [name for name, column in self.columns.items() if len(column) != self.count]
        wrong += [name for name, (flat, ends) in self.ragged.items() if not _fits(flat, ends, self.count)]
        if wrong:
            raise DataError(f"damaged example store: {', '.join(wrong)}", file=path, remedy=AGAIN)

    def __len__(self) -> int:
        return self.count

    @classmethod
    def build(
        cls, examples: Iterable[Mapping[str, Value]], folder: str | Path, name: str, fingerprint: str = ""
    ) -> ExampleStore:
        """All examples have the same fields. The store exists only once its last file is in place."""
        folder = Path(folder)
        files.make_folder(folder)
        path = folder / f"{name}.json"
        if path.exists():
            files.remove(path)
        rows = list(examples)
        columns: dict[str, NDArray[Any]] = {}
        is_ragged = {field: isinstance(value, np.ndarray) for field, value in rows[0].items()} if rows else {}
        for field, several in is_ragged.items():
            parts = [row[field] for row in rows]
            if several:
                flat, ends = _flattened(parts)
                columns |= {field: flat, f"{field}.ends": ends}
            else:
                columns[field] = np.asarray(parts)
        for column, values in columns.items():
            files.atomic_write(folder / f"{name}.{column}.npy", files.npy_bytes(values))
        plain, ragged = ([field for field, one in is_ragged.items() if one is kind] for kind in (False, True))
        names = [f"{name}.{field}.npy" for field in is_ragged] + [f"{name}.{field}.ends.npy" for field in ragged]
        content = {"count": len(rows), "fingerprint": fingerprint, "plain": plain, "ragged": ragged}
        content["files"] = hashes(folder, names)
        files.atomic_write(path, json.dumps(content).encode())
        return cls(folder, name)

    def lengths(self, field: str) -> NDArray[np.int64]:
        return np.diff(self.ragged[field][1], prepend=0)

    def gather(self, numbers: NDArray[np.int64], unit: str = "") -> Examples:
        """The examples with these indices."""
        fields: dict[str, Tensor | Ragged] = {}
        for name, column in self.columns.items():
            fields[name] = torch.from_numpy(np.asarray(column[numbers]).copy())
        for name, (flat, ends) in self.ragged.items():
            fields[name] = _padded(flat, ends, numbers)
        return Examples(fields, unit)

    def _load(self, field: str) -> NDArray[Any]:
        return read_array(self.folder / f"{self.name}.{field}.npy")


class Buckets(EpochBatches):
    """Batches of examples bucketed by length."""

    def __init__(
        self,
        store: ExampleStore,
        batch_size: int,
        seed: int = 0,
        *,
        by: tuple[str, ...],
        unit: str = "",
        shuffle: bool = True,
    ):
        if not len(store):
            raise DataError("contains no example to make batches of", file=store.folder / store.name)
        self.store, self.batch_size, self.seed, self.unit = store, batch_size, seed, unit
        self.shuffle = shuffle
        self.sizes = [store.lengths(field) for field in reversed(by)]

    def length_of(self, number: int) -> int:
        return -(-len(self.store) // self.batch_size)

    def batch(self, number: int, index: int) -> Examples:
        return self.store.gather(self.numbers(number, index), self.unit)

    def numbers(self, number: int, index: int) -> NDArray[np.int64]:
        """Which examples a batch holds."""
        order, groups = self.plan(number)
        first = int(groups[index]) * self.batch_size
        return order[first : first + self.batch_size]

    def arrange(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return bucket_order(rng, self.sizes, self.batch_size, POOL, self.shuffle)


def _fits(flat: NDArray[Any], ends: NDArray[Any], count: int) -> bool:
    rising = len(ends) == count and ends.dtype == np.int64 and not (np.diff(ends, prepend=0) < 0).any()
    return rising and len(flat) == (int(ends[-1]) if count else 0)
