<<<<<<< HEAD
"""Generation: from a prompt to text, token by token."""

from elman.generation.choose import GenerationConfig
from elman.generation.stream import Generated, generate, stream

__all__ = ["Generated", "GenerationConfig", "generate", "stream"]
=======
"""Text from a model: choosing tokens, and streaming them."""

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
>>>>>>> generation
