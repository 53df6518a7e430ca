"""The registries of models, and what a model predicts: the next token, or masked ones."""

from typing import Any, Literal

from elman.errors import ConfigError
from elman.registry import Registry

Prediction = Literal["left-to-right", "masked"]
"""The context of a predicted token: everything before it, or everything but it."""
LIKELIHOOD_OF: dict[Prediction, str] = {"left-to-right": "likelihood", "masked": "pseudo-likelihood"}
"""What the sum of token log-probabilities of such a model is."""
MODELS: Registry[Any] = Registry("model")
"""Language models, constructed as `Model(config, vocab_size)`; `Model.Config` holds every default. Each has
`initial_state`, `forward`, `step` and `losses`."""
CLASSIFIERS: Registry[Any] = Registry("classifier")
TAGGERS: Registry[Any] = Registry("tagger")
TRANSLATORS: Registry[Any] = Registry("translator")
"""Models of other tasks, constructed with what the task knows: tokens, labels, tags."""


def prediction_of(model: Any) -> Prediction:
    """The prediction type of a model or model class; the default is left-to-right."""
    return getattr(model, "prediction", "left-to-right")


def is_masked(model: Any) -> bool:
    """Whether a model, or its class, predicts hidden tokens from both sides."""
    return prediction_of(model) == "masked"


def frame_of(model: Any) -> tuple[int, int] | None:
    """The tokens around each text that a masked model reads but does not predict, if it has such."""
    return getattr(getattr(model, "config", None), "frame", None)


def masked_model_error() -> ConfigError:
    """The error for asking a masked model for the next token."""
    return ConfigError(
        "a masked model predicts tokens from both sides and cannot generate from left to right. It can score text "
        "(elman score, elman eval); to generate, train a left-to-right model, such as --model lstm"
    )
