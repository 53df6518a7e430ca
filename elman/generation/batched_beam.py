"""Beam search over a whole list of sources: batches of similar length, results in the order given."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from elman.batches import Ragged
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.beam import BeamConfig, Hypothesis, beam_search


def search_all(
    model: Any,
    sources: Sequence[Sequence[int]],
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    batch_size: int = 128,
) -> list[list[Hypothesis]]:
    """For each source, what an encoder-decoder most probably makes of it, the best first."""
    found = dict(search_each(model, sources, eos_id, config, batch_size=batch_size))
    return [found[number] for number in range(len(sources))]


def search_each(
    model: Any,
    sources: Sequence[Sequence[int]],
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    batch_size: int = 128,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The same with the number of each source, as soon as its batch is done: the longest first, so that what does not
    fit into memory shows at once."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    for first in range(0, len(order), batch_size):
        numbers = order[first : first + batch_size]
        source = _ragged([sources[number] for number in numbers], device_of(model))
        with inference_mode(model):
            state = model.start(source)
        found = beam_search(model, state, eos_id, config, source_lengths=source.lengths)
        yield from zip(numbers, found.lists(eos_id), strict=True)


def _ragged(rows: list[Sequence[int]], device: torch.device) -> Ragged:
    lengths = torch.tensor([len(row) for row in rows])
    values = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for place, row in zip(values, rows, strict=True):
        place[: len(row)] = torch.tensor(row, dtype=torch.long)
    return Ragged(values.to(device), lengths.to(device))
