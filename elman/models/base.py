"""The interface of language models, neural or count-based, and the registries of models."""

from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from elman.errors import ConfigError
from elman.registry import Registry
from elman.shapes import Lengths, State, Token, Tokens

Prediction = Literal["left-to-right", "masked"]
"""The context of a predicted token: everything before it, or everything but it."""
LIKELIHOOD_OF: dict[Prediction, str] = {"left-to-right": "likelihood", "masked": "pseudo-likelihood"}
"""What the sum of token log-probabilities of such a model is."""
MODELS: Registry[Any] = Registry("model")
"""Language models, constructed as `Model(config, vocab_size)`; `Model.Config` holds every default."""
CLASSIFIERS: Registry[Any] = Registry("classifier")
TAGGERS: Registry[Any] = Registry("tagger")
TRANSLATORS: Registry[Any] = Registry("translator")
"""Models of other tasks, constructed with what the task knows: tokens, labels, tags."""


@runtime_checkable
class SequenceModel(Protocol):
    """A distribution over the next token, with an explicit state."""

    vocab_size: int

    def initial_state(self, batch: int) -> State: ...

    def forward(
        self, tokens: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...

    def step(self, token: Token, state: State) -> tuple[Tensor, State]: ...

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...


def prediction_of(model: Any) -> Prediction:
    """The prediction type of a model or model class; the default is left-to-right."""
    return getattr(model, "prediction", "left-to-right")


def is_masked(model: Any) -> bool:
    """Whether a model, or its class, predicts hidden tokens from both sides."""
    return prediction_of(model) == "masked"


def masked_model_error() -> ConfigError:
    """The error for asking a masked model for the next token."""
    return ConfigError(
        "a masked model predicts tokens from both sides and cannot generate from left to right. It can score text "
        "(elman score, elman eval); to generate, train a left-to-right model, such as --model lstm"
    )
