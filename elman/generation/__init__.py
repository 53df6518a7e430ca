"""Generation: from a prompt to text, token by token."""

from elman.generation.choose import GenerationConfig, choose, shape_logits
from elman.generation.stream import Chosen, Generated, generate, generate_tokens, stream

__all__ = [
    "Chosen",
    "Generated",
    "GenerationConfig",
    "choose",
    "generate",
    "generate_tokens",
    "shape_logits",
    "stream",
]
