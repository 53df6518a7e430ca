"""Sequences drawn from a model, word after word: as beam search writes them, but by chance instead of by rank."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.evaluation.inference_mode import device_of
from elman.generation import cuda_graph, stream
from elman.generation.beam import BeamConfig, Hypotheses, one_of_each, row_limits
from elman.generation.sampling import DrawConfig, GenerationConfig
from elman.ops.state import tensors
from elman.shapes import Lengths, State


def draw(
    model: Any,
    state: State,
    eos_id: int,
    config: BeamConfig,
    rules: DrawConfig,
    streams: Sequence[np.random.Generator],
    *,
    source_lengths: Lengths | None = None,
) -> Hypotheses:
    """One sequence for each row of `state`, that of `model.start(source)`; each row has its own random numbers.

    `config` limits and scores as in `beam_search`, `rules` say what is drawn from.
    """
    first = next(tensors(state))[1]
    assert len(streams) == len(first) > 0, f"{len(streams)} streams for {len(first)} rows"
    limits = row_limits(config, source_lengths, len(first), first.device)
    choosing = GenerationConfig(**{name: getattr(rules, name) for name in DrawConfig.model_fields})
    by_graph = device_of(model).type == "cuda" and not cuda_graph.obstacle(model, state)
    write = cuda_graph.write_rows if by_graph else stream.write_rows
    rows = cuda_graph.write_limited(model, state, eos_id, limits.tolist(), choosing, streams, write)
    return one_of_each(rows, config, first.device)
