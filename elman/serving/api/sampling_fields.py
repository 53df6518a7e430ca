"""Fields that every route for text takes, with OpenAI's names and defaults, and the settings that follow from them."""

from typing import Annotated, Any

from pydantic import Field

from elman.generation.sampling import GenerationConfig
from elman.serving.api.routing import Body

Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]
Tokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]
Strings = Annotated[list[str], Field(fail_fast=True)]  # an error for each item of a long list would take seconds


class StreamOptions(Body):
    include_usage: bool = False
    """End the stream with a chunk that has the usage."""
    continuous_usage_stats: bool = False
    """Put the usage so far into every chunk."""
    include_obfuscation: bool = False
    """Accepted and ignored."""


class SamplingFields(Body):
    model: Annotated[str, Field(max_length=256)] | None = None
    """Name of a served model; may be left out where only one is served."""
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    """0 is greedy decoding; default 1."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling; default 1: all tokens."""
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """Sample from the k most probable tokens; 0 or -1: all."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Leave out tokens less probable than this share of the most probable one."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """The same seed gives the same text, whatever else the server does."""
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    """Divides positive logits of the last 64 tokens, and multiplies negative ones."""
    logit_bias: Annotated[dict[TokenId, Bias], Field(json_schema_extra={"additionalProperties": False})] | None = None
    """Added to the logits of tokens, by id."""
    stop: str | Strings | None = None
    """Strings at which the text ends; they are not part of it."""
    stream: bool = False
    """Send the text piece by piece, as server-sent events."""
    stream_options: StreamOptions | None = None
    # OpenAI's clients send these; they change no answer
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    def stops(self) -> list[str]:
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in given if text]

    def settings(self, **others: Any) -> GenerationConfig:
        """The sampling settings; `others` replace what these fields say."""
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": max(self.top_k, 0) if self.top_k is not None else None,
            "min_p": self.min_p,
            "seed": None if self.seed is None else self.seed % 2**63,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "logit_bias": {int(token): bias for token, bias in (self.logit_bias or {}).items()} or None,
            "stop": self.stops(),
        }
        # no upper limit here: the server's own have been checked
        return GenerationConfig.make({name: value for name, value in (given | others).items() if value is not None})
