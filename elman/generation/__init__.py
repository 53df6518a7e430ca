"""Generation: from a prompt to text, token by token."""

from elman.generation.beam import BeamConfig, Hypotheses, Hypothesis, beam_search, forced_log_probs
from elman.generation.engine import StreamScorer
from elman.generation.ensemble import Ensemble
from elman.generation.minimum_bayes_risk import minimum_bayes_risk
from elman.generation.sample_sequences import sample_sequences
from elman.generation.sampling import GenerationConfig, SamplingConfig, random_stream
from elman.generation.stream import Generated, generate, generate_tokens, stream
