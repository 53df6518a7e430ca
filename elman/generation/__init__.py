"""Generation: from a prompt to text, token by token."""

from elman.generation.batched_beam import search_all, search_each
from elman.generation.beam import BeamConfig, Hypotheses, Hypothesis, beam_search, forced_log_probs
from elman.generation.ensemble import Ensemble
from elman.generation.minimum_bayes_risk import minimum_bayes_risk
from elman.generation.sample_sequences import draw
from elman.generation.sampling import DrawConfig, GenerationConfig, choose, random_stream, shape_logits
from elman.generation.stream import Chosen, Generated, generate, generate_tokens, stream
from elman.generation.stream_score import StreamScorer

__all__ = [
    "BeamConfig",
    "Chosen",
    "DrawConfig",
    "Ensemble",
    "Generated",
    "GenerationConfig",
    "Hypotheses",
    "Hypothesis",
    "StreamScorer",
    "beam_search",
    "choose",
    "draw",
    "forced_log_probs",
    "generate",
    "generate_tokens",
    "minimum_bayes_risk",
    "random_stream",
    "search_all",
    "search_each",
    "shape_logits",
    "stream",
]
