"""Generation: from a prompt to text, token by token."""

from elman.generation.beam import BeamConfig, Hypotheses, Hypothesis, beam_search, forced_log_probs
from elman.generation.choose import DrawConfig, GenerationConfig, choose, random_stream, shape_logits
from elman.generation.draw import draw
from elman.generation.ensemble import Ensemble
from elman.generation.follow import Follower
from elman.generation.risk import least_risk
from elman.generation.search import search_all, search_each
from elman.generation.stream import Chosen, Generated, generate, generate_tokens, stream

__all__ = [
    "BeamConfig",
    "Chosen",
    "DrawConfig",
    "Ensemble",
    "Follower",
    "Generated",
    "GenerationConfig",
    "Hypotheses",
    "Hypothesis",
    "beam_search",
    "choose",
    "draw",
    "forced_log_probs",
    "generate",
    "generate_tokens",
    "least_risk",
    "random_stream",
    "search_all",
    "search_each",
    "shape_logits",
    "stream",
]
