"""Generation: from a prompt to text, token by token."""

from elman.generation.choose import GenerationConfig
from elman.generation.stream import Generated, generate, stream

__all__ = ["Generated", "GenerationConfig", "generate", "stream"]
