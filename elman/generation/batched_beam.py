"""Beam search over a list of sources in length-sorted batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from elman.batches import collate
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.beam import BeamConfig, Hypothesis, beam_search


def beam_search_all(
    model: Any,
    sources: Sequence[Sequence[int]],
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    batch_size: int = 128,
) -> list[list[Hypothesis]]:
    """The best hypotheses of an encoder-decoder for each source, best first, in the order of the sources."""
    results = dict(beam_search_batches(model, sources, eos_id, config, batch_size=batch_size))
    return [results[number] for number in range(len(sources))]


def beam_search_batches(
    model: Any,
    sources: Sequence[Sequence[int]],
    eos_id: int,
    config: BeamConfig | None = None,
    *,
    batch_size: int = 128,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yields (index of source, hypotheses) batch by batch: longest sources first, so that running out of memory
    happens at the start."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    for first in range(0, len(order), batch_size):
        numbers = order[first : first + batch_size]
        rows = [{"source": np.array(sources[number], dtype=np.int64)} for number in numbers]
        source = collate(rows).to(device_of(model)).ragged("source")
        with inference_mode(model):
            state = model.start(source)
        results = beam_search(model, state, eos_id, config, source_lengths=source.lengths)
        yield from zip(numbers, results.lists(eos_id), strict=True)
