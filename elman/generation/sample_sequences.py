"""Ancestral sampling of whole sequences, with the interface of beam search."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.evaluation.inference_mode import device_of
from elman.generation import cuda_graph, stream
from elman.generation.beam import BeamConfig, Hypotheses, row_limits, single_hypotheses
from elman.generation.sampling import GenerationConfig, SamplingConfig
from elman.ops.state import tensors
from elman.shapes import Lengths, State


def sample_sequences(
    model: Any,
    state: State,
    eos_id: int,
    config: BeamConfig,
    rules: SamplingConfig,
    streams: Sequence[np.random.Generator],
    *,
    source_lengths: Lengths | None = None,
) -> Hypotheses:
    """One sequence for each row of `state` (from `model.start(source)`); each row has its own random generator.

    `config` limits and scores as in `beam_search`; `rules` are temperature, top-k and top-p.
    """
    first = next(tensors(state))[1]
    assert len(streams) == len(first) > 0, f"{len(streams)} streams for {len(first)} rows"
    limits = row_limits(config, source_lengths, len(first), first.device)
    choosing = GenerationConfig(**{name: getattr(rules, name) for name in SamplingConfig.model_fields})
    by_graph = device_of(model).type == "cuda" and not cuda_graph.obstacle(model, state)
    write = cuda_graph.generate_rows if by_graph else stream.generate_rows
    rows = cuda_graph.generate_within_limits(model, state, eos_id, limits.tolist(), choosing, streams, write)
    return single_hypotheses(rows, config, first.device)
