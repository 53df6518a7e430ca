"""What every language model offers, counted or trained, and the names they go by."""

from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor

from elman.config import Config
from elman.errors import ConfigError
from elman.registry import Registry
from elman.shapes import Lengths, State, Token, Tokens

Prediction = Literal["left-to-right", "masked"]
"""What a model sees of a text when it predicts a token: all before it, or all but it."""
KINDS: dict[Prediction, str] = {"left-to-right": "likelihood", "masked": "pseudo-likelihood"}
"""What the sum of its losses then is."""


@runtime_checkable
class SequenceModel(Protocol):
    """A distribution over the next token that carries its past as a value."""

    vocab_size: int

    def initial_state(self, batch: int) -> State: ...

    def forward(
        self, tokens: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...

    def step(self, token: Token, state: State) -> tuple[Tensor, State]: ...

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...


class ModelClass(Protocol):
    """Built as `Model(config, vocab_size)`; its `Config` holds every default."""

    name: ClassVar[str]
    Config: ClassVar[type[Config]]

    def __call__(self, config: Any, vocab_size: int) -> SequenceModel: ...


MODELS: Registry[Any] = Registry("model")
CLASSIFIERS: Registry[Any] = Registry("classifier")
TAGGERS: Registry[Any] = Registry("tagger")
TRANSLATORS: Registry[Any] = Registry("translator")
"""Models of other tasks: they are built from what a task learns of its data, such as labels and tags."""


def prediction_of(model: Any) -> Prediction:
    """A model, or its class, that does not say predicts from left to right."""
    return getattr(model, "prediction", "left-to-right")


def is_masked(model: Any) -> bool:
    """Whether a model, or its class, predicts hidden tokens from both sides."""
    return prediction_of(model) == "masked"


def cannot_step() -> ConfigError:
    """What to raise where a masked model is asked for what comes next."""
    return ConfigError(
        "a masked model fills gaps with both sides in sight: it has no steps and writes no text from left to right. "
        "It can judge text (elman score, elman eval); to generate, train a model that reads from left to right, "
        "like --model lstm"
    )
