"""Beam search over a list of sources in length-sorted batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.batches import length_batches
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
    """The best hypotheses of an encoder-decoder for each source, best first, in the order of the sources.

    Long sources are searched first, so that running out of memory happens at the start.
    """
    results: list[list[Hypothesis]] = [[] for _ in sources]
    rows = [{"source": np.array(source, dtype=np.int64)} for source in sources]
    for indices, batch in length_batches(rows, "source", batch_size):
        source = batch.to(device_of(model)).ragged("source")
        with inference_mode(model):
            state = model.start(source)
        found = beam_search(model, state, eos_id, config, source_lengths=source.lengths)
        for index, hypotheses in zip(indices, found.lists(eos_id), strict=True):
            results[index] = hypotheses
    return results
